"""What an experiment is given: the plan, the arms, the order, and how servers are reached."""

import importlib.metadata
import platform
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import loadgen
from loadgen.errors import UserError
from loadgen.experiment.order import order
from loadgen.records import ArmSpec, ExperimentManifest, Plan, Slo
from loadgen.server.address import Wire, verified, without_userinfo
from loadgen.server.host import host_facts
from loadgen.store import read_experiment, read_once, write_once

Restart = Literal["each-block", "never"]

PACKAGES = ("httpx", "httptools", "asyncio-throttle", "numpy", "scipy", "msgspec", "prometheus-client", "click")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How servers are reached and waited for. Nothing here changes what is sent."""

    headers: Mapping[str, str] = field(default_factory=dict)
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 600.0
    start_timeout_s: float = 1800.0
    scrape_interval_s: float = 0.25
    transport: Literal["lean", "httpx"] = "lean"
    ca_file: str | None = None
    insecure: bool = False

    def tls(self) -> ssl.SSLContext | None:
        """How https servers are verified; None = by the system's own rules. Raises UserError for a bad CA file."""
        if self.ca_file is None and not self.insecure:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (ssl.SSLError, OSError) as error:
            raise UserError(f"--ca-file: {self.ca_file}: {error}; give a PEM file of certificates") from error
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def wire(self) -> Wire:
        """A fresh transport for what is asked beside the load (facts, metrics); None = httpx's own."""
        return verified(self.tls())


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulation:
    """What stands in for servers in virtual time: profiles as asked for and their YAML, and the seed of their noise."""

    profiles: Mapping[str, str]
    noise_seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """An experiment ready to be conducted; `done` are the positions in the order that need no more driving."""

    root: Path
    manifest: ExperimentManifest
    plan: Plan
    reach: Reach
    done: frozenset[int] = frozenset()


def restart_for(arms: tuple[ArmSpec, ...], asked: Restart | None) -> Restart:
    """`each-block` unless asked otherwise; `never` where no arm is ours to restart.

    Raises UserError where `each-block` is asked of servers that loadgen did not start.
    """
    ours = [arm for arm in arms if arm.url is None]
    if not ours:
        if asked == "each-block":
            raise UserError("--restart: each-block: loadgen did not start these servers; use 'never' or leave it out")
        return "never"
    return asked or "each-block"


def create(
    *,
    root: Path,
    command: str,
    scenario: tuple[str, str],
    plan: Plan,
    arms: tuple[ArmSpec, ...],
    repeats: int,
    restart: Restart,
    slo: Slo,
    reach: Reach,
    emulation: Emulation | None = None,
) -> Setup:
    """Makes the run directory `root` with its manifest and plan. `scenario` = (name, text). `emulation`: virtual time.

    Raises UserError if `root` already holds something, ExperimentError if the disk refuses.
    """
    if root.exists() and any(root.iterdir()):
        raise UserError(f"--out: {root}: already holds files; give a new folder, or --resume {root} to go on with it")
    manifest = ExperimentManifest(
        loadgen=loadgen.__version__,
        command=without_userinfo(command),
        scenario=scenario[0],
        scenario_text=scenario[1],
        plan_digest=plan.digest,
        arms=arms,
        order=order(len(arms), repeats),
        restart=restart,
        slo=slo,
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        client_host=host_facts() if emulation is None else None,
        packages=_packages(),
        plan_notes=plan.notes,
        noise_seed=None if emulation is None else emulation.noise_seed,
        profiles={} if emulation is None else dict(emulation.profiles),
    )
    write_once(root, manifest)
    write_once(root, plan)
    return Setup(root=root, manifest=manifest, plan=plan, reach=reach)


def resume(root: Path, reach: Reach, *, virtual_time: bool = False) -> Setup:
    """An interrupted experiment, to go on with. Blocks that ended `complete` are not driven again.

    Raises UserError if `root` is no run directory, its plan is gone, or it is of the other kind of time.
    """
    manifest, plan = read_once(root, ExperimentManifest), read_once(root, Plan)
    if manifest is None or plan is None:
        raise UserError(f"--resume: {root}: no experiment.json and plan.json there; give the folder of an earlier run")
    if virtual_time != (manifest.noise_seed is not None):
        verb = "simulate" if manifest.noise_seed is not None else "compare"
        raise UserError(f"--resume: {root}: is a run of another kind; should be `loadgen {verb} --resume {root}`")
    if plan.digest != manifest.plan_digest:
        raise UserError(f"--resume: {root}/plan.json: is not the plan that this run began with; put that one back")
    complete = (b.manifest.order for b in read_experiment(root).blocks if b.end and b.end.how == "complete")
    return Setup(root=root, manifest=manifest, plan=plan, reach=reach, done=frozenset(complete))


def nonce(manifest: ExperimentManifest) -> str:
    """What makes this experiment's prompts differ from an earlier one's on a server with a warm prefix cache."""
    return blake2b(f"{manifest.plan_digest} {manifest.started_at}".encode(), digest_size=6).hexdigest()


def _packages() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        versions[name] = importlib.metadata.version(name)
    return versions

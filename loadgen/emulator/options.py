"""The command line of an emulated server: its own options, and the engine's flags in vLLM's notation.

Light on purpose: `loadgen emulate --help` shows OPTIONS without loading the engine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from loadgen.errors import UserError


class Option(NamedTuple):
    """An option that takes a value. `many`: it may be given again."""

    name: str
    metavar: str
    what: str
    many: bool = False


OPTIONS: tuple[Option, ...] = (
    Option("profile", "NAME", "A profile in deploy/emulator/profiles, or a YAML file."),
    Option("host", "HOST", "Address to listen on [127.0.0.1]."),
    Option("port", "PORT", "Port to listen on; 0 takes a free one [8000]."),
    Option("seed", "NUMBER", "Makes this process's noise repeatable [another one at each start]."),
    Option("machine-seed", "NUMBER", "Servers of one number share the machine's slow wandering [0]."),
    Option("origin", "SECONDS", "Where drift and wandering begin, on CLOCK_MONOTONIC [its last whole hour]."),
    Option("record", "FILE", "Write when each event was sent, one JSON line each."),
    Option("fault", "TEXT", "Plant a fault; may be given again.", many=True),
    Option("log-version", "VERSION", "vLLM release whose log wording and metric names are used [the profile's]."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says. `flags`: the engine's, flag -> value, as in `records.ArmSpec`."""

    profile: str
    host: str = "127.0.0.1"
    port: int = 8000
    seed: int | None = None
    machine_seed: int = 0
    origin_s: float | None = None
    record: str | None = None
    faults: tuple[str, ...] = ()
    log_version: str | None = None
    flags: Mapping[str, str] = field(default_factory=dict)


def read(arguments: Sequence[str]) -> Options:
    """Raises UserError with every complaint. `--x V` and `--x=V` are values, `--x` and `--no-x` switches."""
    own, flags, loose = _split(arguments)
    profiles = [*own.get("profile", ()), *loose]
    complaints = []
    if len(profiles) != 1:
        told = "none given" if not profiles else f"several given ({', '.join(profiles)})"
        complaints.append(f"profile: {told}; name one, such as h100-llama3.1-8b")
    numbers = {name: _number(name, own, complaints) for name in ("port", "seed", "machine-seed", "origin")}
    if complaints:
        raise UserError(*complaints)
    port, seed, machine, origin = numbers.values()
    return Options(
        profile=profiles[0],
        host=own.get("host", ["127.0.0.1"])[-1],
        port=8000 if port is None else int(port),
        seed=None if seed is None else int(seed),
        machine_seed=0 if machine is None else int(machine),
        origin_s=origin,
        record=own.get("record", [None])[-1],
        faults=tuple(own.get("fault", ())),
        log_version=own.get("log-version", [None])[-1],
        flags=flags,
    )


def _split(arguments: Sequence[str]) -> tuple[dict[str, list[str]], dict[str, str], list[str]]:
    """Own options, the engine's flags, and what is neither."""
    own: dict[str, list[str]] = {}
    flags: dict[str, str] = {}
    loose: list[str] = []
    known = {option.name for option in OPTIONS}
    words = list(arguments)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            loose.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("_", "-")
        if not equals and words and not words[0].startswith("--"):
            value, equals = words.pop(0), "="
        if name in known:
            if not equals:
                raise UserError(f"--{name}: needs a value")
            own.setdefault(name, []).append(value)
        elif equals:
            flags[name] = value
        elif name.startswith("no-"):
            flags[name[3:]] = "false"
        else:
            flags[name] = "true"
    return own, flags, loose


def _number(name: str, own: Mapping[str, Sequence[str]], complaints: list[str]) -> float | None:
    text = own.get(name, [None])[-1]
    if text is None:
        return None
    whole = name != "origin"
    try:
        number = int(text) if whole else float(text)
    except ValueError:
        number = -1
    most = 65535 if name == "port" else 2**63 - 1
    if not 0 <= number <= most:
        complaints.append(f"--{name}={text}: should be a{' whole' if whole else ''} number from 0 to {most}")
        return None
    return number

"""One planted comparison: run in virtual time and judged, or run without noise to learn what is true."""

from dataclasses import dataclass, replace

import msgspec
import numpy as np

from loadgen.analysis.judge import judge
from loadgen.analysis.windows import stage_data
from loadgen.emulator.arm import Emulated
from loadgen.emulator.noise import NoiseSpec
from loadgen.engines.kv_formats import likely_capacity_ratio
from loadgen.experiment.order import order
from loadgen.experiment.simulate import RESTART_S, simulated
from loadgen.quantities import QUANTITIES
from loadgen.records import ArmSpec, Block, ExperimentManifest, Plan, Report, Slo
from loadgen.records.planned import StagePlan

SCRAPES = 100  # of a stage at least: stages here are shorter than a user's, and are read as often
NO_SLO = Slo()
STARTED_AT = "2026-01-01T00:00:00+00:00"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Two arms, what is sent to them, and how often. `drift`: relative slowdown from the first block to the last."""

    plan: Plan
    base: Emulated
    test: Emulated
    noise: NoiseSpec
    repeats: int = 4
    restart: str = "each-block"
    drift: float = 0.0
    slo: Slo = NO_SLO


def run(trial: Trial, seed: int) -> Report:
    """The report on the noisy experiment."""
    block_s = _block_s(trial)
    lasts_s = 2 * trial.repeats * (block_s + (RESTART_S if trial.restart == "each-block" else 0.0))
    noise = replace(trial.noise, drift_per_hour=trial.drift * 3600 / lasts_s)
    engines = [replace(arm, noise=noise) for arm in (trial.base, trial.test)]
    experiment = simulated(
        _manifest(trial, trial.repeats), trial.plan, engines, seed=seed, scrape_interval_s=interval_s(block_s)
    )
    return judge(experiment, predicted_ratio=likely_capacity_ratio)


def interval_s(block_s: float) -> float:
    """Between two scrapes."""
    return min(0.25, block_s / 2 / SCRAPES)


def _block_s(trial: Trial) -> float:
    block = quiet(trial.plan, trial.base, scrape_interval_s=1.0)
    return 0.0 if block.end is None else block.end.ended_s


def quiet(plan: Plan, arm: Emulated, *, scrape_interval_s: float = 0.25) -> Block:
    """One block without any noise."""
    silent = replace(arm, noise=NoiseSpec())
    manifest = ExperimentManifest(
        loadgen="",
        command="",
        scenario=plan.scenario,
        scenario_text="",
        plan_digest=plan.digest,
        arms=(ArmSpec(name="a", engine="emulator"),),
        order=(0,),
        restart="never",
        slo=NO_SLO,
        started_at=STARTED_AT,
    )
    return simulated(manifest, plan, [silent], seed=0, scrape_interval_s=scrape_interval_s).blocks[0]


def _manifest(trial: Trial, repeats: int) -> ExperimentManifest:
    arms = tuple(
        ArmSpec(name=name, engine="emulator", flags={"kv-cache-dtype": arm.kv_dtype})
        for name, arm in (("base", trial.base), ("test", trial.test))
    )
    return ExperimentManifest(
        loadgen="",
        command="",
        scenario=trial.plan.scenario,
        scenario_text="",
        plan_digest=trial.plan.digest,
        arms=arms,
        order=order(2, repeats),
        restart=trial.restart,
        slo=trial.slo,
        started_at=STARTED_AT,
    )


AVERAGED = 16


def averaged_ratios(trial: Trial, stage: StagePlan, seed: int) -> dict[tuple[str, str], float]:
    """test / base of every quantity of one stage over many blocks: the truth where queues make it depend on noise."""
    alone = msgspec.structs.replace(trial.plan, stages=(stage,))
    many = replace(trial, plan=alone, repeats=AVERAGED, restart="each-block", drift=0.0)
    calm = replace(trial.noise, start=0.0, wander=0.0)  # a factor on whole blocks would only blur the average
    engines = [replace(arm, noise=calm) for arm in (trial.base, trial.test)]
    experiment = simulated(_manifest(many, AVERAGED), alone, engines, seed=seed, scrape_interval_s=1.0)
    views = [(b.manifest.arm, stage_data(b, stage.spec, trial.slo, steady=False)) for b in experiment.blocks]
    found = {}
    for quantity in QUANTITIES.values():
        values = {
            arm: [quantity.extract(one.view) for name, one in views if name == arm and one] for arm in ("base", "test")
        }
        if quantity.better is not None and all(None not in found and 0 not in found for found in values.values()):
            logs = {arm: np.mean(np.log(np.array(known, dtype=float))) for arm, known in values.items()}
            found[stage.spec.name, quantity.name] = float(np.exp(logs["test"] - logs["base"]))
    return found


def true_ratios(plan: Plan, base: Emulated, test: Emulated, slo: Slo = NO_SLO) -> dict[tuple[str, str], float]:
    """test / base of every quantity of every stage without noise, keyed (stage, quantity)."""
    blocks = [quiet(plan, arm) for arm in (base, test)]
    found = {}
    for stage in plan.stages:
        steady = stage.spec.concurrency is not None and stage.spec.planned >= 3 * stage.spec.concurrency
        views = [stage_data(block, stage.spec, slo, steady=steady) for block in blocks]
        for quantity in QUANTITIES.values():
            values = [None if one is None else quantity.extract(one.view) for one in views]
            if quantity.better is not None and values[0] and values[1]:
                found[stage.spec.name, quantity.name] = values[1] / values[0]
    return found


@dataclass(frozen=True, kw_only=True)
class Plain:
    """What one block without noise shows to the naked eye; none of it is computed by the analysis under test."""

    itl_s: float  # one stream, median gap
    ttft_s: float  # one stream, median
    tokens_per_s: float  # saturated stage, over all of it
    running: float  # saturated stage, mean batch


def plain(plan: Plan, arm: Emulated) -> Plain:
    """The figures by which causes are called material."""
    block = quiet(plan, arm, scrape_interval_s=0.05)
    single = [s for s in block.samples if s.stage == "one-stream" and not s.warmup]
    many = [s for s in block.samples if s.stage == "saturated" and not s.warmup]
    start_s, end_s = min(s.sent_s for s in many), max(s.end_s for s in many)
    running = [s.engines[0].values["running"] for s in block.scrapes if start_s <= s.at_s <= end_s]
    return Plain(
        itl_s=float(np.median(np.concatenate([np.diff(s.events_s) for s in single]))),
        ttft_s=float(np.median([s.events_s[0] - s.sent_s for s in single])),
        tokens_per_s=sum(len(s.events_s) for s in many) / (end_s - start_s),
        running=float(np.mean(running)),
    )


def decoded_contexts(stage: StagePlan) -> np.ndarray:
    """The context at which each token after the first is decoded, by the plan alone."""
    return np.concatenate([r.prompt_tokens + np.arange(1, r.output_tokens) for r in stage.requests])

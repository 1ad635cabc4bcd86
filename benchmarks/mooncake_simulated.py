"""What a larger prefix cache is worth: an hour of Mooncake's conversations on an emulated H100, in virtual time.

    LOADGEN_TRACES=FOLDER python benchmarks/mooncake_simulated.py            # 10 minutes
    LOADGEN_TRACES=FOLDER python benchmarks/mooncake_simulated.py --part hits

Prints Markdown. `hits`: the share of prompt tokens found in the prefix cache at five capacities, beside a plain LRU
over the trace's own blocks, with steps between the two that tell what makes the difference. `pays`: bf16 against fp8 in
the same memory, at the trace's rate and at one that the machine can serve. `cost`: CPU seconds of one simulation.
"""

import argparse
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from loadgen.emulator.arm import Emulated, emulated
from loadgen.emulator.contents import Contents
from loadgen.emulator.cost import StepCost
from loadgen.emulator.profile import Profile, load, token_bytes
from loadgen.emulator.virtual import drive_stage
from loadgen.emulator.virtual_process import Process
from loadgen.records import Request, StagePlan
from loadgen.traces.read import read_trace
from loadgen.workload.plan import build
from loadgen.workload.scenario import find, load as load_scenario

SCENARIO, PROFILE, TRACE_BLOCK = "mooncake-conversation", "h100-llama3.1-8b", 512
CAPACITIES = (1, 2, 4, 8, 16)  # million tokens
SERVED = 0.4  # of the trace's speed: what this machine can take
EACH_S = 5.0  # between readings of the engine's account
NO_TIME = StepCost(fixed_s=1e-9, bytes_per_token=0.0, attention_bandwidth_bytes_per_s=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One simulated replay."""

    arm: Emulated
    hit_ratio: float
    ttft_p50_s: float
    ttft_p99_s: float
    ended_s: float
    running: float
    waiting: float
    usage_ratio: float
    preemptions: float
    cpu_s: float


def replay() -> StagePlan:
    """The trace's requests at their own times, without the scenario's other stages and without warm-up."""
    scenario = load_scenario(find(SCENARIO))
    source = scenario.workload.trace
    if source is None:
        raise ValueError(f"{SCENARIO} names no trace")
    stage = build(scenario, read_trace(source.path, source.format)).stages[-1]
    return msgspec.structs.replace(stage, warmup=())


def slowed(stage: StagePlan, speed: float) -> StagePlan:
    """The same requests at `speed` times the trace's pace."""
    requests = (msgspec.structs.replace(one, due_s=(one.due_s or 0.0) / speed) for one in stage.requests)
    return msgspec.structs.replace(stage, requests=tuple(requests))


def arm(profile: Profile, dtype: str, memory_bytes: float | None = None, **flags: str) -> Emulated:
    """The engine with prefix caching on, and `memory_bytes` of cache instead of what the card has."""
    given = {} if memory_bytes is None else {"kv-cache-memory-bytes": f"{memory_bytes:.0f}"}
    return emulated(profile, {"kv-cache-dtype": dtype, "enable-prefix-caching": "true", **given, **flags})


def simulated(stage: StagePlan, engine: Emulated) -> Outcome:
    """The replay on one engine."""
    began_s = time.process_time()
    process = Process(engine, seed=(1,))
    process.begin(0.0, EACH_S)
    samples, (mark,) = drive_stage(stage, process, salt="", origin_s=0.0)
    ttft_s = np.quantile([sample.ttft_s or 0.0 for sample in samples], (0.5, 0.99))
    within = [s.engines[0].values for s in process.scrapes if s.at_s <= mark.ended_s]
    return Outcome(
        arm=engine,
        hit_ratio=process.model.prefix_hits / process.model.prefix_queries,
        ttft_p50_s=float(ttft_s[0]),
        ttft_p99_s=float(ttft_s[1]),
        ended_s=mark.ended_s,
        running=float(np.mean([values["running"] for values in within])),
        waiting=float(np.mean([values["waiting"] for values in within])),
        usage_ratio=float(np.mean([values["kv_usage_ratio"] for values in within])),
        preemptions=process.tally.counters["preemptions"],
        cpu_s=time.process_time() - began_s,
    )


class Bench:
    """The trace and the machine; each replay is simulated once, whichever table asks for it."""

    def __init__(self) -> None:
        self.stage = replay()
        self.profile = load(PROFILE)
        self.each_bytes = token_bytes(self.profile, "bfloat16")
        self._known: dict[tuple[float, str, float | None], Outcome] = {}

    def memory_bytes(self, millions: float) -> float:
        """What so many million tokens take in 16 bits."""
        return millions * 1e6 * self.each_bytes

    def replayed(self, speed: float, dtype: str, memory_bytes: float | None) -> Outcome:
        """The trace at this speed on an engine with this memory for its cache; None: the card's own."""
        key = (speed, dtype, memory_bytes)
        if key not in self._known:
            self._known[key] = simulated(slowed(self.stage, speed), arm(self.profile, dtype, memory_bytes))
        return self._known[key]


Touched = tuple[Sequence[object], Sequence[object], int]  # blocks looked up, then stored; prompt tokens


def of_trace(requests: Iterable[Request]) -> Iterator[Touched]:
    """The trace's own blocks: one per run, the last one partial and counted as what it holds."""
    for request in requests:
        blocks = [run.key for run in request.runs]
        yield blocks, blocks, request.prompt_tokens


def of_engine(requests: Iterable[Request], block_tokens: int, *, outputs: bool) -> Iterator[Touched]:
    """The engine's blocks: full ones alone, the prompt's last token never found, outputs stored too if wanted."""
    contents = Contents(block_tokens)
    for request in requests:
        blocks, prompt = contents.of(request, ""), request.prompt_tokens
        stored = blocks if outputs else blocks[: prompt // block_tokens]
        yield blocks[: (prompt - 1) // block_tokens], stored, prompt


def lru(stream: Iterable[Touched], block_tokens: int, capacity_tokens: float) -> float:
    """The share of prompt tokens that a cache of whole blocks, least recently used out first, would have held.

    A request is looked up and stored when it arrives and holds nothing; its last block is the first to go.
    """
    held: OrderedDict[object, None] = OrderedDict()
    most, hits, tokens = int(capacity_tokens // block_tokens), 0, 0
    for looked_up, stored, prompt_tokens in stream:
        found = next((place for place, block in enumerate(looked_up) if block not in held), len(looked_up))
        hits += min(found * block_tokens, prompt_tokens)
        tokens += prompt_tokens
        for block in reversed(stored):
            held[block] = None
            held.move_to_end(block)
        while len(held) > most:
            held.popitem(last=False)
    return hits / tokens


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A Markdown table."""
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
    print()


def percent(ratio: float) -> str:
    """One digit, as the sources have it."""
    return f"{100 * ratio:.1f} %"


def hits(bench: Bench) -> None:
    """From a plain LRU to the engine under load, a step at a time."""
    size, requests = bench.profile.scheduler.block_tokens, bench.stage.requests

    def without_time(millions: int) -> float:
        engine = arm(bench.profile, "bfloat16", bench.memory_bytes(millions))
        return simulated(bench.stage, replace(engine, cost=NO_TIME)).hit_ratio

    def under_load(speed: float) -> Callable[[int], float]:
        return lambda millions: bench.replayed(speed, "bfloat16", bench.memory_bytes(millions)).hit_ratio

    def without_stays(millions: int) -> float:
        short = (msgspec.structs.replace(one, output_tokens=1) for one in requests)
        stage = msgspec.structs.replace(bench.stage, requests=tuple(short))
        return simulated(stage, arm(bench.profile, "bfloat16", bench.memory_bytes(millions))).hit_ratio

    steps: dict[str, Callable[[int], float]] = {
        f"LRU, the trace's {TRACE_BLOCK}-token blocks": lambda m: lru(of_trace(requests), TRACE_BLOCK, m * 1e6),
        f"LRU, {size}-token blocks": lambda m: lru(of_engine(requests, size, outputs=False), size, m * 1e6),
        "... and outputs are kept too": lambda m: lru(of_engine(requests, size, outputs=True), size, m * 1e6),
        "the engine, its steps taking no time": without_time,
        f"the engine on the H100, {SERVED:g} of the trace's speed": under_load(SERVED),
        "**the engine on the H100, the trace's speed**": under_load(1.0),
        "... and every answer is one token: nobody stays": without_stays,
    }
    head = ("prompt tokens found in the cache", *(f"{millions} M" for millions in CAPACITIES))
    table(head, ((name, *(percent(share(m)) for m in CAPACITIES)) for name, share in steps.items()))


def pays(bench: Bench) -> None:
    """bf16 against fp8 in the same memory."""
    memories = (None, *(bench.memory_bytes(millions) for millions in CAPACITIES[:3]))
    head = ("memory for the cache", "KV", "tokens", "hits", "TTFT p50", "TTFT p99", "running", "waiting", "KV usage")
    for speed in (SERVED, 1.0):
        print(f"At {'' if speed == 1 else f'{speed:g} of '}the trace's speed:\n")
        asked = ((memory, dtype) for memory in memories for dtype in ("bfloat16", "fp8"))
        rows = (_row(memory, bench.replayed(speed, dtype, memory)) for memory, dtype in asked)
        table((*head, "preempted", "ended after", "CPU"), rows)


def _row(memory: float | None, found: Outcome) -> tuple[str, ...]:
    card = " (the card's)" if memory is None else ""
    return (
        f"{found.arm.kv_cache_bytes / 2**30:,.0f} GiB{card}",
        found.arm.kv_dtype,
        f"{found.arm.capacity_tokens / 1e6:.2f} M",
        percent(found.hit_ratio),
        f"{found.ttft_p50_s:,.1f} s",
        f"{found.ttft_p99_s:,.1f} s",
        f"{found.running:,.0f}",
        f"{found.waiting:,.0f}",
        f"{100 * found.usage_ratio:.0f} %",
        f"{found.preemptions:,.0f}",
        f"{found.ended_s / 60:,.0f} min",
        f"{found.cpu_s:.0f} s",
    )


def cost(bench: Bench) -> None:
    """What one simulation costs, reading the trace and planning included."""
    found = simulated(bench.stage, arm(bench.profile, "bfloat16", bench.memory_bytes(4)))
    tokens = sum(request.prompt_tokens + request.output_tokens for request in bench.stage.requests)
    print(
        f"{len(bench.stage.requests):,} requests, {tokens:,} tokens, {found.ended_s / 60:.0f} minutes of the engine: "
        f"{time.process_time():.1f} s of CPU, all in\n"
    )


PARTS: dict[str, Callable[[Bench], None]] = {"cost": cost, "hits": hits, "pays": pays}


def main() -> None:
    """Runs the parts asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--part", choices=PARTS, action="append", help="what to print (default: all)")
    asked = parser.parse_args().part or list(PARTS)
    bench = Bench()
    for name in asked:
        PARTS[name](bench)


if __name__ == "__main__":
    main()

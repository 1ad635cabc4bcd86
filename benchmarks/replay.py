"""Is a trace replayed as it stands? A real vLLM with prefix caching on, asked what it saw.

    python -m benchmarks.replay TRACE [--window 600 700] [--speed 1] [--scale 0.03125] [--think-cap 2]
        [--longest 1900] [--outputs 64] [--capacity-mib 128] [--url URL]

TRACE is any file that loadgen reads. Without `--url` an arm with a tiny model is served from deploy/vllm/tiny-cpu.yaml,
with prefix caching on and blocks of 32 tokens, and stopped at the end. Printed: how many prompts had the planned number
of tokens by the server's count; the share of prompt tokens that it found in its prefix cache, by its counters and by
the usage of each request, beside what the plan could give at most (an unlimited cache; one of the server's capacity,
requests one after the other); how late starts and later turns were sent; and whether each later turn was due when those
that it follows had ended and its client had thought.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from loadgen.cli.plan import planned
from loadgen.records import Block, Plan, Request, Sample
from loadgen.store import read_experiment
from loadgen.workload.reuse import lru_ratio, reused_ratio

PORT = 8197
SERVED = ("enable-prefix-caching=true", "block-size=32", "enable-prompt-tokens-details=true")
SCENARIO = """
name: replay
seed: 5
repeats: 1
workload:
  trace: {{path: {trace}{keys}}}
  max_input_tokens: {longest}
  max_output_tokens: {outputs}
stages:
  - {{name: replay, speed: {speed:g}, warmup: 2}}
"""


@contextmanager
def served(capacity_mib: int, log: Path) -> Iterator[str]:
    """The root of a server with a tiny model, while it runs."""
    command = [sys.executable, "-m", "loadgen", "serve", "bf16", "--shared", "deploy/vllm/tiny-cpu.yaml"]
    for flag in (*SERVED, f"kv-cache-memory-bytes={capacity_mib * 2**20}"):
        command += ["--set", flag]
    url = f"http://127.0.0.1:{PORT}"
    with log.open("wb") as out:
        server = subprocess.Popen([*command, "--port", str(PORT)], stdout=out, stderr=subprocess.STDOUT)
        try:
            for _ in range(300):
                if server.poll() is not None:
                    sys.exit(f"the server ended: {log.read_text()[-2000:]}")
                if _answers(url):
                    break
                time.sleep(1)
            yield url
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(60)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def scenario(asked: argparse.Namespace) -> str:
    """The scenario's text."""
    keys = f", window: [{asked.window[0]:g}, {asked.window[1]:g}]" if asked.window else ""
    keys += f", scale_tokens: {asked.scale:g}" if asked.scale != 1 else ""
    keys += f", think_cap: {asked.think_cap:g}" if asked.think_cap else ""
    trace = str(asked.trace.resolve())
    return SCENARIO.format(
        trace=f'"{trace}"', keys=keys, longest=asked.longest, outputs=asked.outputs, speed=asked.speed
    )


def told(plan: Plan, block: Block) -> Iterator[str]:
    """What there is to say of a block of a plan with one stage."""
    requests = plan.stages[0].requests
    samples = {sample.index: sample for sample in block.samples if not sample.warmup}
    ok = [sample for sample in samples.values() if sample.ok]
    facts = block.facts
    yield f"{facts.engine} {facts.version}, {facts.capacity_tokens:,} KV tokens in blocks of {facts.block_tokens}"
    yield f"requests: {len(requests)} planned, {len(samples)} sent, {len(ok)} ok"
    right = sum(sample.prompt_tokens == sample.planned_prompt_tokens for sample in ok)
    yield f"prompt tokens as planned: {right} of {len(ok)}"
    yield from _hits(requests, block, ok)
    yield from _lags(requests, samples)


def _hits(requests: Sequence[Request], block: Block, ok: Sequence[Sample]) -> Iterator[str]:
    size, capacity = block.facts.block_tokens or 1, block.facts.capacity_tokens or 0
    prompts = sum(request.prompt_tokens for request in requests)
    grown = {name: _growth(block, name) for name in ("prefix_hits", "prefix_queries")}
    cached = sum(sample.cached_tokens or 0 for sample in ok)
    yield f"prefix hits: {grown['prefix_hits'] / max(1.0, grown['prefix_queries']):.1%} by counters (warm-up included)"
    yield f"prefix hits: {cached / prompts:.1%} by usage ({sum(s.cached_tokens is not None for s in ok)} told)"
    yield f"theory: {reused_ratio(requests):.1%} common, {reused_ratio(requests, size):.1%} in blocks of {size}"
    yield f"theory: {lru_ratio(requests, capacity, size):.1%} at {capacity:,} tokens, one after the other"


def _growth(block: Block, name: str) -> float:
    seen = [engine.values[name] for scrape in block.scrapes for engine in scrape.engines if name in engine.values]
    return seen[-1] - seen[0] if seen else 0.0


def _lags(requests: Sequence[Request], samples: dict[int, Sample]) -> Iterator[str]:
    for name, which in (("starts", False), ("later turns", True)):
        lags = [
            samples[one.index].lag_s or 0.0 for one in requests if bool(one.after) is which and one.index in samples
        ]
        if lags:
            p50, p99, most = (1e3 * float(np.quantile(lags, level)) for level in (0.5, 0.99, 1.0))
            yield f"send lag of {len(lags)} {name}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, max {most:.2f} ms"
    off = [
        abs((samples[one.index].due_s or 0.0) - max(samples[place].end_s for place in one.after) - one.think_s)
        for one in requests
        if one.after and one.due_s is None and one.index in samples
    ]
    if off:
        yield f"later turns due at the last end + think time: off by at most {1e3 * max(off):.3f} ms ({len(off)} turns)"


def main() -> None:
    """Serves, replays, prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--window", type=float, nargs=2)
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--think-cap", type=float)
    parser.add_argument("--longest", type=int, default=1900)
    parser.add_argument("--outputs", type=int, default=64)
    parser.add_argument("--capacity-mib", type=int, default=128)
    parser.add_argument("--url")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "replay.yaml", Path(folder) / "run"
        path.write_text(scenario(asked), encoding="utf-8")
        _, _, plan = planned(str(path))
        for note in plan.notes:
            print(f"note: {note}")
        command = [sys.executable, "-m", "loadgen", "run", str(path), "--out", str(out), "--url"]
        if asked.url:
            subprocess.run([*command, asked.url], check=True)
        else:
            with served(asked.capacity_mib, Path(folder) / "server.log") as url:
                subprocess.run([*command, url], check=True)
        print("\n".join(told(plan, read_experiment(out).blocks[0])))


if __name__ == "__main__":
    main()

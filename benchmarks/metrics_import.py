"""How well a workload is recovered from two scrapes of /metrics: known lengths against imported ones.

    python -m benchmarks.metrics_import --url http://127.0.0.1:8000 [--requests 250] [--rate 4] [--shared 256]
    python -m benchmarks.metrics_import --trace conversation.trace.jsonl [--max-model-len 131072]

With `--url`: sends requests of known lengths (lognormal, cut at the model's context; the first `--shared` tokens equal)
at Poisson arrivals to a vLLM that serves no one else, scrapes before and after, and imports the two scrapes. With
`--trace`: no server; what vLLM's histograms would have counted of a trace. Prints a Markdown table.
"""

import argparse
import asyncio
import bisect
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from loadgen.records import Trace
from loadgen.traces.convert import import_trace
from loadgen.traces.read import read_trace

QUANTILES = (0.1, 0.5, 0.9, 0.99)
Length = tuple[int, int]  # of prompt and answer


def lengths(many: int, longest: int, rng: random.Random) -> list[Length]:
    """Prompts of 250 tokens at the median, answers of 16, both with a long tail."""
    found = []
    for _ in range(many):
        answer = max(1, min(longest // 4, round(rng.lognormvariate(2.8, 0.8))))
        found.append((max(1, min(longest - answer, round(rng.lognormvariate(5.5, 0.9)))), answer))
    return found


async def driven(url: str, sent: Sequence[Length], rate_per_s: float, shared: int, folder: Path) -> float:
    """Sends it all, writes before.txt and after.txt to `folder`; gives the seconds between them."""
    rng = random.Random(2)
    prefix = [rng.randrange(100, 1000) for _ in range(shared)]
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=600, trust_env=False, limits=limits) as client:
        model = (await client.get("/v1/models")).json()["data"][0]["id"]

        async def one(length: Length, after_s: float) -> None:
            await asyncio.sleep(after_s)
            prompt = (prefix + [rng.randrange(100, 1000) for _ in range(length[0])])[: length[0]]
            body = {"model": model, "prompt": prompt, "max_tokens": length[1], "ignore_eos": True}
            (await client.post("/v1/completions", json=body)).raise_for_status()

        (folder / "before.txt").write_text((await client.get("/metrics")).text)
        began_s, at_s = time.monotonic(), 0.0
        async with asyncio.TaskGroup() as group:
            for length in sent:
                group.create_task(one(length, at_s))
                at_s += rng.expovariate(rate_per_s)
        took_s = time.monotonic() - began_s
        (folder / "after.txt").write_text((await client.get("/metrics")).text)
    return took_s


def counted(sent: Sequence[Length], longest: int, folder: Path) -> None:
    """Two scrapes as vLLM would give them of a trace: buckets 1, 2, 5, 10, ... up to the longest context."""
    edges = [step * 10**power for power in range(9) for step in (1, 2, 5) if step * 10**power <= longest]
    for name, seen in (("before.txt", []), ("after.txt", list(sent))):
        lines = []
        for stem, values in (("prompt", [one[0] for one in seen]), ("generation", [one[1] for one in seen])):
            stem, values = f"vllm:request_{stem}_tokens", sorted(values)
            for edge in edges:
                lines.append(f'{stem}_bucket{{engine="0",le="{edge}.0"}} {bisect.bisect_right(values, edge)}')
            lines.append(f'{stem}_bucket{{engine="0",le="+Inf"}} {len(values)}')
            lines.append(f'{stem}_sum{{engine="0"}} {sum(values)}')
        (folder / name).write_text("\n".join(lines) + "\n")


def quantile(values: Sequence[int], at: float) -> int:
    """The nearest-rank quantile."""
    return sorted(values)[min(len(values) - 1, int(at * len(values)))]


def table(sent: Sequence[Length], trace: Trace) -> None:
    """Prints true and recovered quantiles and means, and the error of each."""
    print("| tokens | | true | recovered | error |\n|---|---|---:|---:|---:|")
    found = [(row.input_tokens, row.output_tokens) for row in trace.rows]
    for place, what in enumerate(("prompt", "answer")):
        true, got = [one[place] for one in sent], [one[place] for one in found]
        for at in QUANTILES:
            a, b = quantile(true, at), quantile(got, at)
            print(f"| {what} | p{at * 100:g} | {a:,} | {b:,} | {100 * (b / a - 1):+.1f} % |")
        a_mean, b_mean = sum(true) / len(true), sum(got) / len(got)
        print(f"| {what} | mean | {a_mean:,.1f} | {b_mean:,.1f} | {100 * (b_mean / a_mean - 1):+.2f} % |")


def main() -> None:
    """Drives or counts, imports, prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--url")
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--requests", type=int, default=250)
    parser.add_argument("--rate", type=float, default=4.0, help="per second")
    parser.add_argument("--shared", type=int, default=256, help="tokens that all prompts begin with")
    parser.add_argument("--max-model-len", type=int, default=2048)
    parser.add_argument("--keep", type=Path, help="folder for the scrapes and the trace")
    asked = parser.parse_args()
    if (asked.url is None) == (asked.trace is None):
        parser.error("give one of --url and --trace")
    with tempfile.TemporaryDirectory() as temporary:
        folder: Path = asked.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if asked.trace:
            sent = [(row.input_tokens, row.output_tokens) for row in read_trace(asked.trace).rows]
            counted(sent, asked.max_model_len, folder)
            took_s = 3600.0
        else:
            sent = lengths(asked.requests, asked.max_model_len - 1, random.Random(1))
            took_s = asyncio.run(driven(asked.url, sent, asked.rate, asked.shared, folder))
        options = {"seconds": f"{took_s:.3f}", "rows": str(len(sent))}
        import_trace([folder / "before.txt", folder / "after.txt"], folder / "trace.jsonl", options=options)
        trace = read_trace(folder / "trace.jsonl")
    table(sent, trace)
    for note in trace.notes:
        print(f"- {note}")


if __name__ == "__main__":
    main()

"""Does another client see the same server? loadgen and `vllm bench serve` in turn, same lengths, same server.

    python benchmarks/agreement.py --url http://127.0.0.1:8000 --tokenizer .cache/tiny-llama [--rounds 2]
        [--input 128] [--output 128] [--concurrency 1 16] [--waves 4] [--vllm .venv-vllm/bin/vllm]

Per concurrency C: `--waves` x C requests (at least 8) of constant length, in the order loadgen, vllm, vllm, loadgen,
after a warm-up wave each. Printed: the median over rounds of each figure, and its ratio. The other client's throughput
is total tokens / duration, so loadgen's is taken over its makespan here, not over its steady window.

What differs by construction: `vllm bench serve` stamps an arrival after it has parsed the event's JSON, from an aiohttp
reader; takes the first event with a choice for the first token; starts a request's clock before the connection is made;
and does not read `/metrics`, which costs the server some milliseconds each time: `--scrape-interval` shows how much.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from loadgen.records import Report

SCENARIO = """
name: agreement
description: "constant lengths, for a comparison with another client"
seed: {seed}
repeats: 1
workload: {{input_tokens: {input}, output_tokens: {output}}}
stages:
  - {{name: stage, concurrency: {concurrency}, requests: {requests}, warmup: {warmup}}}
"""
FIGURES = ("TTFT mean ms", "TTFT p50 ms", "TTFT p99 ms", "ITL mean ms", "ITL p50 ms", "ITL p99 ms", "output tok/s")


def by_loadgen(options: argparse.Namespace, concurrency: int, seed: int) -> dict[str, float]:
    """One run of loadgen: the figures by name."""
    import msgspec

    requests = max(8, options.waves * concurrency)
    with tempfile.TemporaryDirectory() as folder:
        scenario, out = Path(folder) / "agreement.yaml", Path(folder) / "run"
        scenario.write_text(
            SCENARIO.format(
                seed=seed,
                input=options.input,
                output=options.output,
                concurrency=concurrency,
                requests=requests,
                warmup=concurrency,
            )
        )
        command = [sys.executable, "-m", "loadgen", "run", str(scenario), "--url", options.url, "--out", str(out)]
        command += ["--scrape-interval", str(options.scrape_interval)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        report = msgspec.json.decode((out / "report.json").read_bytes(), type=Report)
    seen = {row.quantity: row.estimate.center or 0.0 for row in report.summaries}
    figures = {
        f"{kind.upper()} {statistic} ms": 1e3 * seen[f"{kind}_{statistic}_s"]
        for kind in ("ttft", "itl")
        for statistic in ("mean", "p50", "p99")
    }
    return {**figures, "output tok/s": requests * options.output / seen["makespan_s"]}


def by_vllm(options: argparse.Namespace, concurrency: int, seed: int) -> dict[str, float]:
    """One run of `vllm bench serve`: the figures by name."""
    with tempfile.TemporaryDirectory() as folder:
        command = [options.vllm, "bench", "serve", "--backend", "vllm", "--base-url", options.url]
        command += ["--model", options.model, "--tokenizer", options.tokenizer, "--dataset-name", "random"]
        command += ["--random-input-len", str(options.input), "--random-output-len", str(options.output)]
        command += ["--num-prompts", str(max(8, options.waves * concurrency)), "--num-warmups", str(concurrency)]
        command += ["--max-concurrency", str(concurrency), "--seed", str(seed), "--ignore-eos", "--temperature", "0"]
        command += ["--save-result", "--result-dir", folder, "--result-filename", "result.json", "--disable-tqdm"]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stdout[-1500:] + done.stderr[-1500:])
        seen = json.loads((Path(folder) / "result.json").read_text())
    figures = {
        f"{kind.upper()} {'p50' if statistic == 'median' else statistic} ms": seen[f"{statistic}_{kind}_ms"]
        for kind in ("ttft", "itl")
        for statistic in ("mean", "median", "p99")
    }
    return {**figures, "output tok/s": seen["output_throughput"]}


def main() -> None:
    """Runs both clients in turn and prints a table for each concurrency."""
    parser = argparse.ArgumentParser(description="loadgen beside vllm bench serve, on one server")
    parser.add_argument("--url", required=True)
    parser.add_argument(
        "--tokenizer", required=True, help="folder with the model's tokenizer (the other client needs it)"
    )
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--vllm", default=".venv-vllm/bin/vllm")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--input", type=int, default=128)
    parser.add_argument("--output", type=int, default=128)
    parser.add_argument("--waves", type=int, default=4)
    parser.add_argument("--scrape-interval", type=float, default=0.25, help="loadgen's readings of /metrics, seconds")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 16])
    options = parser.parse_args()
    for concurrency in options.concurrency:
        seen: dict[str, list[dict[str, float]]] = {"loadgen": [], "vllm": []}
        for turn in range(options.rounds):
            clients = (("loadgen", by_loadgen), ("vllm", by_vllm))
            for name, client in clients if turn % 2 == 0 else clients[::-1]:
                seen[name].append(client(options, concurrency, seed=100 * concurrency + turn))
        print(f"\n{concurrency} in flight, {options.input} in, {options.output} out, {options.rounds} rounds each")
        print(f"{'':14}{'loadgen':>10}{'vllm bench':>12}{'ratio':>8}   rounds")
        for figure in FIGURES:
            ours, theirs = ([run[figure] for run in seen[name]] for name in ("loadgen", "vllm"))
            a, b = statistics.median(ours), statistics.median(theirs)
            rounds = " ".join(f"{x:.1f}/{y:.1f}" for x, y in zip(ours, theirs, strict=True))
            print(f"{figure:14}{a:10.2f}{b:12.2f}{a / b:8.3f}   {rounds}")


if __name__ == "__main__":
    main()

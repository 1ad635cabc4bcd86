"""The emulated server as a process: over real sockets, stopped by a signal, and as the arms of a comparison."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec
import pytest

from loadgen.clock import Clock
from loadgen.drive.client import Client
from loadgen.engines.body import request_body
from loadgen.engines.emulator import ENGINE
from loadgen.records import Report, Request, Run
from loadgen.store import read_experiment

ROOT = Path(__file__).resolve().parents[2]
PROFILE = "h100-llama3.1-8b"
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@contextmanager
def server(*arguments: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A server on a free port: its process and its URL. It is told to stop in the end, and must end well."""
    command = [sys.executable, "-m", "loadgen.emulator", "--profile", PROFILE, "--port", "0", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE)
    assert process.stdout is not None
    url = ""
    with process:
        try:
            for line in process.stdout:
                if found := re.search(r"on (http://127\.0\.0\.1:\d+)", line):
                    url = found[1]
                if "startup complete" in line:
                    break
            yield process, url
        finally:
            if process.poll() is None:
                process.terminate()
            process.stdout.read()
        assert process.wait(20) == 0


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "loadgen", *arguments]
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=100, check=False)


def test_every_event_arrives_after_it_was_sent(tmp_path):
    recorded = tmp_path / "sent.jsonl"

    async def drive(url):
        clock = Clock()
        body = request_body(endpoint="completions", model=MODEL, prompt=[1000] * 50, output_tokens=12, engine=ENGINE)
        async with Client(base_url=url, endpoint="completions", clock=clock) as client:
            sent = [
                client.send(body, request=Request(index=index, runs=(Run("a", 50),), output_tokens=12), stage="x")
                for index in range(4)
            ]
            return clock, await asyncio.gather(*sent)

    with server("--record", str(recorded)) as (_, url):
        clock, samples = asyncio.run(drive(url))
    lines = [json.loads(line) for line in recorded.read_text().splitlines()]
    assert len({line["id"] for line in lines}) == 4
    sent_s = {number: [line["at_s"] for line in lines if line["request"] == number] for number in range(4)}
    assert [len(instants) for instants in sent_s.values()] == [14] * 4, "12 tokens, usage, end mark"
    for sample in samples:
        assert sample.failure is None
        arrived_s = [at_s + clock.origin for at_s in sample.events_s]
        own = [
            instants
            for instants in sent_s.values()
            if all(sent <= came for sent, came in zip(instants, arrived_s, strict=False))
        ]
        assert own, "no recorded answer went out before this one came in"
    latest = [max(sample.events_s) + clock.origin for sample in samples]
    assert max(instants[11] for instants in sent_s.values()) <= max(latest)
    assert len({sample.text_digest for sample in samples}) == 1


def test_a_client_that_hangs_up_frees_the_engine():
    async def drive(url):
        body = {"prompt": [1000], "max_tokens": 5000, "ignore_eos": True, "stream": True}
        async with httpx.AsyncClient(base_url=url) as http:
            async with http.stream("POST", "/v1/completions", json=body) as response:
                async for _ in response.aiter_raw():
                    break
            for _ in range(100):
                text = (await http.get("/metrics")).text
                if re.search(r'request_success_total\{.*"abort".*\} 1\.0', text):
                    return text
                await asyncio.sleep(0.05)
            return text

    with server() as (_, url):
        text = asyncio.run(drive(url))
    assert re.search(r"num_requests_running\{.*\} 0\.0", text)
    assert re.search(r'request_success_total\{.*"abort".*\} 1\.0', text)


def test_told_to_stop_it_breaks_off_what_is_under_way_and_ends_well():
    async def drive(process, url):
        body = {"prompt": [1000], "max_tokens": 50_000, "ignore_eos": True, "stream": True}
        async with httpx.AsyncClient(base_url=url) as http, http.stream("POST", "/v1/completions", json=body) as got:
            async for _ in got.aiter_raw():
                process.send_signal(signal.SIGTERM)

    with server() as (process, url):
        with pytest.raises(httpx.RemoteProtocolError):
            asyncio.run(drive(process, url))
        assert process.wait(10) == 0


WRONG = [
    (["emulate"], "profile: none given"),
    (["emulate", "nope"], "profile nope: no such profile; known: "),
    (["emulate", PROFILE, "--port", "x"], "--port=x: should be a whole number from 0 to 65535"),
    (["emulate", PROFILE, "--enforce-eager"], "enforce-eager=true: the emulator has no such flag"),
    (["emulate", PROFILE, "--kv-cache-dtype", "int3"], "kv-cache-dtype=int3: profile"),
    (["emulate", PROFILE, "--log-version", "0.7.3"], "version 0.7.3: should be a vLLM release from 0.8 on"),
    (["emulate", PROFILE, "--record", "/no/folder/x"], "--record /no/folder/x: cannot write"),
    (["emulate", PROFILE, "--record", "/"], "--record /: cannot write"),
    (["emulate", PROFILE, "--record", "pyproject.toml"], "--record pyproject.toml: exists and is no record"),
    (["emulate", PROFILE, "--host", "203.0.113.1", "--port", "0"], "--host 203.0.113.1 --port 0: cannot listen"),
]


@pytest.mark.parametrize(("arguments", "said"), WRONG)
def test_a_mistake_is_one_line(arguments, said, capsys):
    from loadgen.cli.main import main

    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith(f"loadgen: {said}")
    assert told.count("\n") == 1


def test_the_module_says_mistakes_the_same_way():
    command = [sys.executable, "-m", "loadgen.emulator", "--profile", PROFILE, "--max-num-seqs", "0", "--port", "-1"]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr == "loadgen emulate: --port=-1: should be a whole number from 0 to 65535\n"
    assert done.stdout == ""


def test_help_does_not_load_the_server():
    code = (
        "import sys\nfrom loadgen.cli.main import program\n"
        "program.main(['emulate', '--help'], standalone_mode=False)\n"
        "assert not {'starlette', 'uvicorn', 'pydantic', 'numpy'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    for option in ("--port", "--record", "--fault", "--log-version", "--kv-cache-dtype"):
        assert option in done.stdout


def test_a_comparison_of_two_emulated_arms_from_end_to_end(tmp_path):
    out = tmp_path / "run"
    shared = tmp_path / "shared.yaml"
    shared.write_text(
        f"profile: {PROFILE}\nkv-cache-memory-bytes: 268435456\nmax-model-len: 2000\nmax-num-seqs: 64\n"
        "enable-prefix-caching: false\n"
    )
    scenario = str(Path(__file__).with_name("short-emulated.yaml"))
    arms = ("--engine", "emulator", "--arm", "bf16", "--arm", "fp8", "--shared", str(shared), "--restart", "never")
    done = run("compare", scenario, *arms, "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "SIMULATED: these figures come from an emulator" in done.stdout
    report = msgspec.json.decode((out / "report.json").read_bytes(), type=Report)
    assert report.simulated
    assert {headline.role for headline in report.headlines} == {"one_stream", "saturated"}
    facts = {arm.name: arm.facts for arm in report.arms}
    assert [facts[name].capacity_tokens for name in ("bf16", "fp8")] == [2048, 4096]
    assert [backend.name for backend in facts["fp8"].backends] == ["FLASH_ATTN"]
    for block in read_experiment(out).blocks:
        assert all(sample.failure is None for sample in block.samples)
        assert any(scrape.engines for scrape in block.scrapes)
    digests = [{(s.stage, s.warmup, s.index): s.text_digest for s in b.samples} for b in read_experiment(out).blocks]
    assert digests[0] == digests[1], "the arms of a repeat are told the same"


def test_a_client_that_leaves_within_its_request_is_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    with server() as (_, url):
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
        assert httpx.get(f"{url}/health").status_code == 200
    assert "Traceback" not in capfd.readouterr().err

"""Emulated servers that loadgen starts itself and that do not behave: they die, hang at shutdown, leave children."""

import asyncio
import re
import time
from contextlib import suppress
from pathlib import Path

import httpx
import msgspec
import psutil
import pytest
from fakes.emulated import PROFILE

from loadgen.cli.main import main
from loadgen.emulator.process import leak_child
from loadgen.records import ArmSpec, Report
from loadgen.server.launch import free_port, launched
from loadgen.store import read_experiment

SCENARIO = """
name: tiny
description: "a few short requests"
seed: 1
repeats: 1
workload: {input_tokens: {range: [8, 24]}, output_tokens: {range: [4, 6]}}
stages:
  - {name: one-stream, concurrency: 1, requests: 6, warmup: 1}
  - {name: busy, concurrency: 4, requests: 24, warmup: 2}
"""


def gone(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


def test_a_leaked_child_is_nobodys_and_ignores_term():
    pid = leak_child(30)
    child = psutil.Process(pid)
    try:
        parent = child.parent()
        assert parent is None or parent.pid not in (psutil.Process().pid, pid)
        child.terminate()
        time.sleep(0.05)
        assert not gone(pid)
    finally:
        child.kill()


def test_a_server_that_ignores_term_and_leaves_a_child_is_ended_whole(tmp_path):
    log = tmp_path / "server.log"

    async def use() -> tuple[int, int, int | None]:
        flags = {"profile": PROFILE, "fault": "hangs-at-shutdown,leaks-children=120"}
        arm = ArmSpec(name="bad", engine="emulator", flags=flags)
        port = free_port(8520)
        async with launched(arm, port=port, log_path=log, on_wait=lambda *_: None, grace_s=0.5) as server:
            await asyncio.sleep(0.3)  # it leaks when it has begun to listen
            found = re.search(r"leaked a child: (\d+)", log.read_text())
            assert found is not None
            child = int(found[1])
            assert not gone(child)
            assert not gone(server.pid)
        return server.pid, child, server.child.process.returncode

    pid, child, code = asyncio.run(use())
    assert gone(pid)
    assert gone(child)
    assert code == 128 + 9  # TERM did not do it


def test_a_death_is_told_at_once_whatever_the_dead_leave_behind(tmp_path):
    body = {"model": "tiny", "prompt": "a", "max_tokens": 2, "stream": True}

    async def use() -> tuple[str, int]:
        flags = {"profile": PROFILE, "fault": "leaks-children=120,process-dies=7"}
        arm = ArmSpec(name="bad", engine="emulator", flags=flags)
        log = tmp_path / "server.log"
        async with launched(arm, port=free_port(8540), log_path=log, on_wait=lambda *_: None, grace_s=3.0) as server:
            assert server.ended() is None
            async with httpx.AsyncClient(trust_env=False) as http:
                with pytest.raises(httpx.TransportError):
                    await http.post(f"{server.url}/v1/completions", json=body)
            async with asyncio.timeout(2.0):  # less than the grace
                while (died := server.ended()) is None:
                    await asyncio.sleep(0.01)
            assert server.child.process.poll() is None  # the supervisor is still busy with what was left
            found = re.search(r"leaked a child: (\d+)", log.read_text())
            assert found is not None
        return str(died), int(found[1])

    died, child = asyncio.run(use())
    assert died.startswith("arm bad: the server ended with exit code 7")
    assert gone(child)


def test_a_server_that_dies_ends_its_block_and_what_was_measured_is_reported(tmp_path, capsys):
    scenario, run = tmp_path / "tiny.yaml", tmp_path / "run"
    scenario.write_text(SCENARIO)
    (tmp_path / "dies.yaml").write_text(f"profile: {PROFILE}\nfault: process-dies=7@20\n")
    (tmp_path / "good.yaml").write_text(f"profile: {PROFILE}\n")
    arms = [word for name in ("good", "dies") for word in ("--arm", str(tmp_path / f"{name}.yaml"))]
    shared = tmp_path / "shared.yaml"
    shared.write_text("enable-prefix-caching: false\n")
    with pytest.raises(SystemExit) as ended:
        main(["compare", str(scenario), "--engine", "emulator", "--shared", str(shared), *arms, "--out", str(run)])
    captured = capsys.readouterr()
    assert ended.value.code == 3
    assert "arm dies: the server ended with exit code 7" in captured.err
    assert "the report shows what was measured before" in captured.err
    good, dead = read_experiment(run).blocks
    assert [block.end and block.end.how for block in (good, dead)] == ["complete", "server_died"]
    assert dead.end is not None
    assert "exit code 7" in dead.end.detail
    for mark in (*good.marks, *dead.marks):
        assert mark.planned == mark.sent + mark.unsent
        assert mark.sent == mark.ok + mark.failed
    last = dead.marks[-1]
    assert last.failed > 0
    assert last.ok + sum(mark.ok for mark in dead.marks[:-1]) <= 19
    assert {s.failure.kind for s in dead.samples if s.failure} <= {"connect", "truncated", "stopped"}
    report = msgspec.json.decode(Path(run / "report.json").read_bytes(), type=Report)
    assert any("dies: no block is complete" in warning for warning in report.warnings)

import contextlib
import json
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from loadgen.cli import facts, serve
from loadgen.errors import ServerError, UserError
from loadgen.server.launch import free_port

HERE = Path(__file__).resolve().parent
LOG = (
    "vllm-1  | (EngineCore pid=1) INFO 11-30 14:45:29 [cuda.py:506] Using TRITON_ATTN attention backend out of "
    "potential backends: ['TRITON_ATTN'].\n"
    "vllm-1  | (EngineCore pid=1) INFO 11-30 14:45:29 [x.py:1] GPU KV cache size: 99 tokens\n"
)


def test_facts_of_a_log_are_json(tmp_path):
    (tmp_path / "server.log").write_text(LOG)
    done = CliRunner().invoke(facts.command, ["--log", str(tmp_path / "server.log")], catch_exceptions=False)
    seen = json.loads(done.output)
    assert seen["backends"][0]["name"] == "TRITON_ATTN"
    assert (seen["capacity_tokens"], seen["capacity_how"], seen["url"]) == (99, "log", None)


def test_facts_from_standard_input():
    done = CliRunner().invoke(facts.command, ["--log", "-"], input=LOG, catch_exceptions=False)
    assert json.loads(done.output)["capacity_tokens"] == 99


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give --url, --log, or both"),
        (["--log", "/no/such.log"], "--log /no/such.log: cannot read: No such file or directory"),
        (["--url", "h:1"], "h:1: not a URL"),
        (["--url", "http://h", "--engine", "x"], "--engine x: unknown; known: vllm, emulator, openai"),
        (
            ["--url", "http://h", "--api-key-env", "LOADGEN_NO_SUCH"],
            "LOADGEN_NO_SUCH: not set in the environment",
        ),
    ],
)
def test_facts_of_nothing(arguments, said):
    with pytest.raises(UserError) as failure:
        CliRunner().invoke(facts.command, arguments, catch_exceptions=False)
    assert said in str(failure.value)


def test_facts_of_a_dead_url():
    with pytest.raises(ServerError, match="nothing answers there"):
        CliRunner().invoke(facts.command, ["--url", f"http://127.0.0.1:{free_port(8470)}"], catch_exceptions=False)


def test_serve_refuses_an_unknown_arm():
    with pytest.raises(UserError, match=r"--arm fp9: no such arm; did you mean fp8\?"):
        CliRunner().invoke(serve.command, ["fp9", "--model", "org/m"], catch_exceptions=False)


@pytest.mark.parametrize("value", ["max-num-seqs", "=4"])
def test_serve_wants_key_and_value(value):
    with pytest.raises(UserError, match="needs KEY=VALUE"):
        CliRunner().invoke(serve.command, ["fp8", "--set", value], catch_exceptions=False)


def test_serve_points_running_servers_elsewhere():
    done = CliRunner().invoke(serve.command, ["a=http://h:1"])
    assert done.exit_code == 2
    assert "loadgen facts --url" in done.output


def test_serve_until_interrupted(tmp_path):
    """The fake engine has no /v1/models worth reading: the facts say "unknown", and Ctrl-C ends everything."""
    script = tmp_path / "python"
    script.write_text(
        f'#!/bin/sh\nif [ "$1" = -m ]; then shift 2; exec {sys.executable} {HERE}/fake_engine.py "$@"; fi\n'
        f'exec {sys.executable} "$@"\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    port = free_port(8480)
    program = [sys.executable, "-c", "from loadgen.cli.serve import command; command()"]
    options = ["fp8", "--model", "org/m", "--port", str(port), "--log", str(tmp_path / "server.log")]
    loadgen = subprocess.Popen(
        [*program, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=HERE.parents[1],
        env={"LOADGEN_VLLM_PYTHON": str(script), "PATH": "/usr/bin:/bin"},
    )
    with loadgen:
        said = ""
        for line in loadgen.stdout:
            said += line
            if "Ctrl-C" in line:
                break
        engines = [child.pid for child in psutil.Process(loadgen.pid).children(recursive=True)]
        loadgen.send_signal(signal.SIGINT)
        said += loadgen.stdout.read()
        assert loadgen.wait(20) == 0
    assert re.search(rf"fp8: http://127.0.0.1:{port} is ready after \d+ s", said)
    assert "KV cache   unknown (unknown, asked for fp8), unknown (unknown)" in said
    assert said.endswith("fp8: stopped\n")
    assert len(engines) == 2
    for pid in engines:
        with contextlib.suppress(psutil.NoSuchProcess):
            assert psutil.Process(pid).status() == psutil.STATUS_ZOMBIE

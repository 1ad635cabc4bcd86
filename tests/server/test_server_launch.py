import asyncio
import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from loadgen.errors import ServerError, UserError
from loadgen.records import ArmSpec
from loadgen.server.launch import flag_arguments, free_port, launched

HERE = Path(__file__).resolve().parent


@pytest.fixture
def fake_python(tmp_path, monkeypatch):
    """A "python" that runs the fake engine for `-m MODULE` and is a real one for everything else."""
    script = tmp_path / "python"
    script.write_text(
        f'#!/bin/sh\nif [ "$1" = -m ]; then shift 2; exec {sys.executable} {HERE}/fake_engine.py "$@"; fi\n'
        f'exec {sys.executable} "$@"\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("LOADGEN_VLLM_PYTHON", str(script))
    return script


def arm(**flags):
    return ArmSpec(name="bf16", engine="vllm", flags={key.replace("_", "-"): value for key, value in flags.items()})


async def use(spec, tmp_path, *, port=None, inside=None, **options):
    waits = []
    options = {"timeout_s": 20.0, "grace_s": 0.5, **options}
    async with launched(
        spec,
        port=port or free_port(8420),
        log_path=tmp_path / "logs" / "server.log",
        on_wait=lambda elapsed_s, line: waits.append((elapsed_s, line)),
        **options,
    ) as server:
        if inside:
            await inside(server)
    return server, waits


def gone(pid):
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


def wait_until(condition, seconds=10.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


def test_up_then_down(fake_python, tmp_path):
    async def inside(server):
        assert psutil.Process(server.pid).is_running()
        assert server.ended() is None
        assert server.url == f"http://127.0.0.1:{server.argv[server.argv.index('--port') + 1]}"

    server, waits = asyncio.run(use(arm(kv_cache_dtype="bfloat16", enforce_eager="true"), tmp_path, inside=inside))
    assert gone(server.pid)
    assert server.argv[-3:] == ("--kv-cache-dtype", "bfloat16", "--enforce-eager")
    assert server.ready_after_s > 0
    assert "loading" in server.log_path.read_text()
    assert all(line in ("", "loading") for _, line in waits)


def test_children_that_ignore_term_and_hide_are_gone_too(fake_python, tmp_path):
    asyncio.run(use(arm(children=str(tmp_path / "pids")), tmp_path))
    pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids)


def test_nothing_survives_a_killed_loadgen(fake_python, tmp_path):
    program = textwrap.dedent(f"""
        import asyncio
        from pathlib import Path
        from loadgen.records import ArmSpec
        from loadgen.server.launch import launched, free_port

        async def main():
            spec = ArmSpec(name="a", engine="vllm", flags={{"children": {str(tmp_path / "pids")!r}}})
            async with launched(spec, port=free_port(8440), log_path=Path({str(tmp_path / "log")!r}),
                                on_wait=lambda *_: None, grace_s=0.3) as server:
                print(server.pid, server.child.process.pid, flush=True)
                await asyncio.sleep(600)

        asyncio.run(main())
    """)
    loadgen = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=HERE.parents[1])
    with loadgen:
        engine, supervisor = map(int, loadgen.stdout.readline().split())
        pids = [engine, supervisor, *map(int, (tmp_path / "pids").read_text().split())]
        assert not any(gone(pid) for pid in pids)
        loadgen.send_signal(signal.SIGKILL)
        loadgen.wait()
        wait_until(lambda: all(gone(pid) for pid in pids))


def test_the_engine_goes_with_a_killed_supervisor(fake_python, tmp_path):
    async def inside(server):
        server.child.process.kill()
        wait_until(lambda: gone(server.pid))
        assert "killed by signal 9" in str(server.ended())

    asyncio.run(use(arm(), tmp_path, inside=inside))


def test_a_port_in_use_is_found_before_anything_starts(fake_python, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServerError, match=f"arm bf16: port {port} is in use by another program"):
            asyncio.run(use(arm(), tmp_path, port=port))
    assert not (tmp_path / "logs").exists()


def test_an_engine_that_dies_tells_why(fake_python, tmp_path):
    with pytest.raises(ServerError) as failure:
        asyncio.run(use(arm(fails="true"), tmp_path))
    assert failure.value.telling == ("ValueError: No available memory for the cache blocks.",)
    assert str(failure.value).startswith("arm bf16: the server ended with exit code 1; its log: ")


def test_an_engine_that_was_killed(fake_python, tmp_path):
    with pytest.raises(ServerError, match=r"was killed by signal 9 \(by the system, when memory ran out\?\)"):
        asyncio.run(use(arm(killed="true"), tmp_path))


def test_an_engine_that_never_gets_ready(fake_python, tmp_path):
    with pytest.raises(ServerError, match="not ready after 1 s") as failure:
        asyncio.run(use(arm(hangs="true"), tmp_path, timeout_s=0.6))
    assert failure.value.telling == ("loading",)


def test_an_engine_that_dies_later(fake_python, tmp_path):
    async def inside(server):
        os.kill(server.pid, signal.SIGTERM)
        await asyncio.to_thread(server.child.process.wait, 10)
        assert "was killed by signal 15" in str(server.ended())

    asyncio.run(use(arm(), tmp_path, inside=inside))


def test_a_program_that_cannot_be_started(tmp_path, monkeypatch):
    program = tmp_path / "python"
    program.write_text("not a program")
    program.chmod(0o755)
    monkeypatch.setenv("LOADGEN_VLLM_PYTHON", str(program))
    with pytest.raises(ServerError, match="exit code 127"):
        asyncio.run(use(arm(), tmp_path))


def test_flags_that_are_loadgens_own(fake_python, tmp_path):
    with pytest.raises(UserError, match="port=1: loadgen sets it"):
        asyncio.run(use(arm(port="1"), tmp_path))


@pytest.mark.parametrize(
    ("flags", "arguments"),
    [
        ({"enforce-eager": "true"}, ["--enforce-eager"]),
        ({"enable-prefix-caching": "false"}, ["--no-enable-prefix-caching"]),
        ({"max-num-seqs": "4"}, ["--max-num-seqs", "4"]),
        ({"layers": '["sliding_window", 3]'}, ["--layers", "sliding_window", "3"]),
        ({"config": '{"a": 1}'}, ["--config", '{"a": 1}']),
        ({"odd": "[x"}, ["--odd", "[x"]),
        ({"text": '["true"]'}, ["--text", "true"]),
    ],
)
def test_flags_as_arguments(flags, arguments):
    assert flag_arguments(flags) == arguments


def test_a_free_port_is_free_and_avoids_what_it_is_told():
    first = free_port(8460)
    assert free_port(8460, avoid=[first]) != first

"""Against the real engine in .venv-vllm: `make test-vllm`."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest

from loadgen.clock import Clock
from loadgen.engines.body import request_body
from loadgen.engines.kv_formats import bytes_per_token
from loadgen.engines.vllm import ENGINE
from loadgen.errors import ServerError
from loadgen.server import arms, facts, launch, probe
from loadgen.server.scrape import Scraper

pytestmark = pytest.mark.vllm

REPOSITORY = Path(__file__).resolve().parents[2]
DEPLOY = REPOSITORY / "deploy"
TINY = DEPLOY / "vllm" / "tiny-cpu.yaml"
PYTHON = REPOSITORY / ".venv-vllm" / "bin" / "python"
SHAPE = {"layers": 8, "kv_heads": 8, "head_dim": 128}
MEMORY_BYTES = 134_217_728

PARSE = """
import json, sys
try:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
except ImportError:  # older than 0.32
    from vllm.entrypoints.openai.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
results = []
for arguments in json.load(sys.stdin):
    parsed = make_arg_parser(FlexibleArgumentParser()).parse_args(arguments)
    results.append({key: getattr(parsed, key) for key in (
        "kv_cache_dtype", "kv_cache_dtype_skip_layers", "enable_prefix_caching", "max_num_seqs", "model")})
json.dump(results, sys.stdout)
"""


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "tiny"
    subprocess.run([PYTHON, DEPLOY / "vllm" / "tiny_model.py", folder], check=True)
    return folder


def arm(name, model, **overrides):
    (found,) = arms.resolve([name], engine=ENGINE, shared=TINY, overrides=overrides, model=str(model), deploy=DEPLOY)
    return found


def run(spec, tmp_path, inside, *, port):
    async def main():
        options = {"log_path": tmp_path / "server.log", "on_wait": lambda *_: None, "timeout_s": 180}
        async with launch.launched(spec, port=port, **options) as server:
            family = [server.pid, *(child.pid for child in psutil.Process(server.pid).children(recursive=True))]
            result = await inside(server)
        assert len(family) > 1, "vLLM forks its engine"
        assert not [pid for pid in family if psutil.pid_exists(pid)]
        return result

    return asyncio.run(main())


async def ask(server, **options):
    body = request_body(model="tiny", engine=ENGINE, **options)
    path = "/v1/completions" if options["endpoint"] == "completions" else "/v1/chat/completions"
    async with httpx.AsyncClient(timeout=60) as client:
        response = await client.post(server.url + path, content=body, headers={"content-type": "application/json"})
    assert response.status_code == 200, response.text
    events = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    assert (events[-1] == "[DONE]") is ENGINE.done_sent
    return json.loads(events[-2])["usage"]


@pytest.mark.parametrize(
    ("name", "dtype", "tokens", "port"), [("bf16", "bfloat16", 4096, 8410), ("fp8", "fp8", 8192, 8411)]
)
def test_an_arm_is_what_it_says(name, dtype, tokens, port, model, tmp_path):
    async def inside(server):
        scrapes = []
        scraper = Scraper(server.url, engine=ENGINE, clock=Clock(), sink=scrapes.append)
        scraping = asyncio.create_task(scraper.run())
        found = await probe.check(server.url, model=None, need_context=2048)
        usages = [
            await ask(server, endpoint="completions", prompt=list(range(2, 302)), output_tokens=40),
            await ask(server, endpoint="chat", prompt="hello there", output_tokens=9),
        ]
        await asyncio.sleep(0.6)
        scraping.cancel()
        text = server.log_path.read_text()
        seen = await facts.read_facts(
            url=server.url, log_text=text, engine=ENGINE, argv=server.argv, ready_after_s=server.ready_after_s
        )
        from_log = await facts.read_facts(url=None, log_text=text, engine=ENGINE)
        return found, usages, scrapes, scraper.warnings, seen, from_log

    found, usages, scrapes, warnings, seen, from_log = run(arm(name, model), tmp_path, inside, port=port)
    assert (found.model, found.max_model_len) == ("tiny", 2048)
    assert (usages[0]["prompt_tokens"], usages[0]["completion_tokens"]) == (300, 40)
    assert usages[1]["completion_tokens"] == 9

    assert (seen.version, seen.model, seen.max_model_len, seen.device) == ("0.32.0", "tiny", 2048, "cpu")
    assert (seen.kv_dtype_asked, seen.kv_dtype, seen.kv_dtype_how) == (dtype, dtype, "endpoint")
    assert (seen.capacity_tokens, seen.capacity_how, seen.block_tokens) == (tokens, "endpoint", 128)
    assert seen.bytes_per_token == bytes_per_token(dtype, **SHAPE) == MEMORY_BYTES / tokens
    assert [(backend.name, backend.how) for backend in seen.backends] == [("CPU_ATTN", "assumed")]
    assert (seen.max_num_seqs, seen.prefix_caching, seen.warnings) == (64, False, ())
    assert (from_log.kv_dtype, from_log.capacity_tokens, from_log.max_num_seqs) == (dtype, tokens, 64)

    assert warnings == []
    last = scrapes[-1].engines[0].values
    assert (last["prompt_tokens"], last["generation_tokens"]) == (300 + usages[1]["prompt_tokens"], 49)
    assert set(last) == set(ENGINE.metrics), "every canonical quantity is exported by 0.32"
    assert (last["requests_finished"], last["ttft_count"]) == (2, 2)


def test_every_arm_and_shared_file_parses_in_vllm_itself():
    names = arms.known_arms(ENGINE, DEPLOY)
    own = [["--config", str(DEPLOY / "vllm" / "arms" / f"{name}.yaml")] for name in names]
    shared = [["--config", str(DEPLOY / "vllm" / file)] for file in ("common.yaml", "tiny-cpu.yaml")]
    specs = arms.resolve(names, engine=ENGINE, shared=None, overrides={}, model="org/m", deploy=DEPLOY)
    built = [launch.server_argv(spec, engine=ENGINE, python=PYTHON, host="127.0.0.1", port=1)[3:] for spec in specs]
    done = subprocess.run(
        [PYTHON, "-c", PARSE],
        input=json.dumps(own + shared + built),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    parsed = json.loads(done.stdout[done.stdout.index("[{") :])
    by_name = dict(zip(names, parsed, strict=False))
    assert by_name["bf16"]["kv_cache_dtype"] == "bfloat16"
    assert by_name["fp8-skip-sliding-window"]["kv_cache_dtype_skip_layers"] == ["sliding_window"]
    for name, from_file, from_argv in zip(names, parsed, parsed[-len(names) :], strict=False):
        for key in ("kv_cache_dtype", "kv_cache_dtype_skip_layers"):
            assert from_file[key] == from_argv[key], name
        assert (from_argv["enable_prefix_caching"], from_argv["model"]) == (False, "org/m")
    assert parsed[len(names) + 1]["max_num_seqs"] == 64


def failure_of(spec, tmp_path, port):
    async def inside(server):
        pytest.fail("it must not get ready")

    with pytest.raises(ServerError) as failure:
        run(spec, tmp_path, inside, port=port)
    return failure.value


def test_an_absurd_flag_is_told(model, tmp_path):
    failure = failure_of(arm("bf16", model, absurd_flag="3"), tmp_path, 8412)
    (told,) = failure.telling
    assert told.startswith("api_server.py: error: unrecognized arguments: --absurd-flag")


def test_a_cache_larger_than_memory_is_told(model, tmp_path):
    failure = failure_of(arm("bf16", model, kv_cache_memory_bytes="900000000000"), tmp_path, 8413)
    assert "ended with exit code 1" in str(failure)
    assert re.search(r"Available memory .* less than requested memory for kv", failure.telling[0])


def test_a_model_that_does_not_load_is_told(model, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text('{"model_type": "llama", "architectures": ["NoSuchForCausalLM"]}')
    failure = failure_of(arm("bf16", broken), tmp_path, 8414)
    assert "NoSuchForCausalLM" in failure.telling[0]


def test_the_program_vllm_can_bench():
    done = subprocess.run(
        [PYTHON.parent / "vllm", "bench", "serve", "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "bench serve" in done.stdout


def test_serve_sh_serves_and_stops(model, tmp_path):
    port = 8415
    with (tmp_path / "log").open("wb") as output:
        script = subprocess.Popen(
            [DEPLOY / "vllm" / "serve.sh", "fp8", "--model", str(model), "--port", str(port), "--host", "127.0.0.1"],
            cwd=REPOSITORY,
            env={**os.environ, "SHARED": str(TINY), "HF_HUB_OFFLINE": "1"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        until = time.monotonic() + 180
        while not reachable(f"http://127.0.0.1:{port}/health"):
            assert script.poll() is None, (tmp_path / "log").read_text()[-2000:]
            assert time.monotonic() < until
            time.sleep(0.5)
        seen = asyncio.run(
            facts.read_facts(url=f"http://127.0.0.1:{port}", log_text=(tmp_path / "log").read_text(), engine=ENGINE)
        )
        assert (seen.kv_dtype, seen.capacity_tokens, seen.model) == ("fp8", 8192, "tiny")
        family = psutil.Process(script.pid).children(recursive=True)
    finally:
        script.send_signal(signal.SIGTERM)
        script.wait(60)
    _, alive = psutil.wait_procs(family, timeout=20)
    assert not alive


def reachable(url):
    try:
        return httpx.get(url, timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


def test_serve_sh_names_the_known_arms():
    done = subprocess.run(
        [DEPLOY / "vllm" / "serve.sh", "fp9"], capture_output=True, text=True, check=False, cwd=REPOSITORY
    )
    assert done.returncode == 2
    assert "fp9: no such arm. Known: bf16 fp8" in done.stderr


def test_the_installer_does_nothing_twice():
    done = subprocess.run(
        [DEPLOY / "vllm" / "install.sh", ".venv-vllm"],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr
    assert "is in .venv-vllm already" in done.stdout
    assert "ready: vLLM" in done.stdout

"""The log of a vLLM of the profile's version, as far as it tells what the engine is: pure, lines out.

Wordings and the releases that have them, read in vLLM's sources from 0.8.0 to 0.33.0: platforms/cuda.py and cpu.py
(backend), config/cache.py (type), v1/core/kv_cache_utils.py and v1/worker (capacity, memory), engine/arg_utils.py (the
way back to the V0 engine), v1/engine/core.py (configuration), entrypoints (arguments).
"""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from loadgen.emulator.arm import Emulated
from loadgen.emulator.metrics import numbers

GIB = 2**30
API, CORE = "APIServer", "EngineCore"

# Names in the registry -> the words of 0.8 to 0.11.
WORDS = {
    "FLASH_ATTN": "Flash Attention",
    "TRITON_ATTN": "Triton",
    "FLASHINFER": "FlashInfer",
    "FLEX_ATTENTION": "FlexAttention",
    "TRITON_MLA": "Triton MLA",
    "FLASHMLA": "FlashMLA",
    "CUTLASS_MLA": "Cutlass MLA",
}
PRIORITY = ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION")
ARCHITECTURES = {"A100": "sm_80", "L40": "sm_89", "RTX 40": "sm_89", "H100": "sm_90", "H200": "sm_90", "B200": "sm_100"}


class Line(NamedTuple):
    """One message of a log: which process, its level, the place in vLLM's source, the text."""

    process: str
    level: str
    place: str
    text: str


def banner(arm: Emulated) -> Line:
    """What no vLLM prints: that none is there."""
    text = (
        f"SIMULATED: loadgen's emulator in the words of vLLM {arm.profile.version}; profile {arm.profile.name}, "
        f"{arm.kv_dtype} cache of {arm.capacity_tokens} tokens; nothing here was measured on a device"
    )
    return Line(API, "WARNING", "serve.py:1", text)


def start_lines(arm: Emulated, *, host: str, port: int) -> list[Line]:
    """What a start prints until the server listens, in order."""
    return [
        *_arguments(arm, host, port),
        *_type(arm),
        *_fallback(arm),
        *_configuration(arm),
        *_backend(arm),
        *_capacity(arm),
        Line(API, "INFO", "launcher.py:38", f"Starting vLLM API server 0 on http://{host}:{port}"),
    ]


def written(line: Line, *, at: datetime, pid: int, version: str) -> str:
    """The line with vLLM's header, as that version writes it."""
    known = numbers(version)
    prefix = ""
    if known >= (0, 10):
        process = f"{line.process}_DP0" if line.process == CORE and known < (0, 32) else line.process
        prefix = f"({process} pid={pid}) "
    return f"{prefix}{line.level} {at:%m-%d %H:%M:%S} [{line.place}] {line.text}"


def uses_v0(arm: Emulated) -> bool:
    """True where this version leaves its V1 engine for a quantized cache: no kernel but XFormers' reads it."""
    return numbers(arm.profile.version) < (0, 11) and arm.format.backend == "XFORMERS"


def asked_type(arm: Emulated) -> str:
    """The KV cache's type as it was asked for."""
    return arm.flags.get("kv-cache-dtype", "auto")


def _arguments(arm: Emulated, host: str, port: int) -> Iterator[Line]:
    version, known = arm.profile.version, numbers(arm.profile.version)
    given: dict[str, object] = {"host": host, "port": port, "model": arm.profile.model.name}
    given |= {flag.replace("-", "_"): _value(text) for flag, text in arm.flags.items()}
    if known < (0, 9):
        yield Line(API, "INFO", "api_server.py:981", f"vLLM API server version {version}")
        told = {"kv_cache_dtype": "auto", "block_size": arm.limits.block_tokens, **given}
        dumped = ", ".join(f"{name}={value!r}" for name, value in told.items())
        yield Line(API, "INFO", "api_server.py:982", f"args: Namespace({dumped})")
        return
    if known < (0, 30):
        yield Line(API, "INFO", "api_server.py:1289", f"vLLM API server version {version}")
    else:
        yield Line(API, "INFO", "api_utils.py:347", f" ▄▄ ▄█ █     █     █ ▀▄▀ █  version {version}")
        yield Line(API, "INFO", "api_utils.py:347", f"  █▄█▀ █     █     █     █  model   {arm.profile.model.name}")
    yield Line(API, "INFO", "api_utils.py:286", f"non-default args: {given}")


def _value(text: str) -> object:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdigit() else text


def _type(arm: Emulated) -> Iterator[Line]:
    asked, known = asked_type(arm), numbers(arm.profile.version)
    told = "It reduces the GPU memory footprint and boosts the performance."
    if "per_token_head" in asked:
        told += " Dynamic per-token-head scales will be computed at runtime."
    elif asked.startswith(("fp8", "nvfp4")):
        told += " Meanwhile, it may cause accuracy drop without a proper scaling factor"
    else:
        return
    name = "fp8" if known < (0, 20) else asked
    yield Line(API, "INFO", "cache.py:361", f"Using {name} data type to store kv cache. {told}")


def _fallback(arm: Emulated) -> Iterator[Line]:
    if uses_v0(arm):
        told = "--kv-cache-dtype is not supported by the V1 Engine. Falling back to V0. "
        yield Line(API, "WARNING", "arg_utils.py:1658", told)


def _configuration(arm: Emulated) -> Iterator[Line]:
    profile = arm.profile
    told = {
        "model": repr(profile.model.name),
        "dtype": "torch.bfloat16",
        "max_seq_len": arm.max_model_len,
        "tensor_parallel_size": 1,
        "kv_cache_dtype": asked_type(arm),
        "device_config": profile.device,
        "served_model_name": arm.served_name,
        "enable_prefix_caching": arm.limits.prefix_caching,
        "enable_chunked_prefill": arm.limits.chunked_prefill,
    }
    generation = "V0" if uses_v0(arm) else "V1"
    dumped = ", ".join(f"{name}={value}" for name, value in told.items())
    text = f"Initializing a {generation} LLM engine (v{profile.version}) with config: {dumped}"
    yield Line(CORE, "INFO", "core.py:133", text)


def _backend(arm: Emulated) -> Iterator[Line]:
    name, known = arm.format.backend, numbers(arm.profile.version)
    if arm.profile.device == "cpu":
        yield from _cpu_backend(name, old=known < (0, 11, 2))
        return
    if uses_v0(arm):
        word = "FlashAttention-2" if known < (0, 8, 5) else "FlashAttention"
        yield Line(CORE, "INFO", "cuda.py:240", f"Cannot use {word} backend for FP8 KV cache.")
        advice = (
            "Please use FlashInfer backend with FP8 KV Cache for better performance by setting environment variable "
            "VLLM_ATTENTION_BACKEND=FLASHINFER"
        )
        yield Line(CORE, "WARNING", "cuda.py:242", advice)
        yield Line(CORE, "INFO", "cuda.py:289", "Using XFormers backend.")
    elif known < (0, 11, 2):
        yield Line(CORE, "INFO", "cuda.py:321", f"Using {WORDS.get(name, name)} backend on V1 engine.")
    elif arm.flags.get("attention-backend", "auto") != "auto":
        yield Line(CORE, "INFO", "cuda.py:446", f"Using AttentionBackendEnum.{name} backend.")
    elif known < (0, 12):
        yield Line(CORE, "INFO", "cuda.py:428", f"Using {name} backend.")
    else:
        end = "." if known >= (0, 16) else ""
        text = f"Using {name} attention backend out of potential backends: {_potential(name)}{end}"
        yield Line(CORE, "INFO", "cuda.py:506", text)
    yield from _kernel(arm, name)


def _cpu_backend(name: str, *, old: bool) -> Iterator[Line]:
    """On a CPU the usual backend is told up to 0.11.0, and by silence since."""
    if name not in ("CPU_ATTN", "TORCH_SDPA"):
        yield Line(CORE, "INFO", "cpu.py:170", f"Using {name} backend.")
    elif old:
        yield Line(CORE, "INFO", "cpu.py:93", "Using Torch SDPA backend.")


def _potential(name: str) -> list[str]:
    """The chosen one and those that come after it in vLLM's order for most GPUs."""
    return list(PRIORITY[PRIORITY.index(name) :]) if name in PRIORITY else [name]


def _kernel(arm: Emulated, name: str) -> Iterator[Line]:
    known, gpu = numbers(arm.profile.version), arm.profile.gpu or ""
    architecture = next((arch for part, arch in ARCHITECTURES.items() if part in gpu), "sm_86")
    if name == "FLASH_ATTN" and known >= (0, 17):
        version = 3 if architecture == "sm_90" else 2
        yield Line(CORE, "INFO", "flash_attn.py:1117", f"Using FlashAttention version {version}")
    if name == "FLASHINFER" and known >= (0, 26):
        text = (
            "FlashInfer resolved query dtypes: prefill=torch.bfloat16, decode=torch.bfloat16, "
            f"decode_backend=flashinfer-native, kv_cache_dtype={asked_type(arm)}, arch={architecture}"
        )
        yield Line(CORE, "INFO", "flashinfer.py:966", text)


def _capacity(arm: Emulated) -> Iterator[Line]:
    known, cpu = numbers(arm.profile.version), arm.profile.device == "cpu"
    if uses_v0(arm):
        yield Line(CORE, "INFO", "executor_base.py:111", f"# cuda blocks: {arm.limits.blocks}, # CPU blocks: 2048")
        return
    gib = arm.kv_cache_bytes / GIB
    if not cpu:
        yield Line(CORE, "INFO", "gpu_worker.py:760", f"Available KV cache memory: {gib:.2f} GiB")
    elif known >= (0, 30):
        text = f"Explicitly set ({round(gib, 2)}/{round(gib, 2)}) GiB for KV cache on node 0."
        yield Line(CORE, "INFO", "cpu_worker.py:185", text)
    device = "CPU" if cpu and known >= (0, 30) else "GPU"
    size = f"{device} KV cache size: {arm.capacity_tokens:,} tokens"
    longest = arm.max_model_len
    most = f"Maximum concurrency for {longest:,} tokens per request: {arm.capacity_tokens / longest:.2f}x"
    texts = [f"{size}, {most}"] if known >= (0, 28) else [size, most]
    for text in texts:
        yield Line(CORE, "INFO", "kv_cache_utils.py:1314", text)

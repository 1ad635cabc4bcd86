import pytest

from loadgen.engines.vllm import ENGINE
from loadgen.server.log_facts import read_log, version_numbers

# (versions, the log's wording, canonical name): a row per wording since 0.5.5.
BACKENDS = [
    ("0.5.5-0.6.6", "Using XFormers backend.", "XFORMERS"),
    ("0.5.5-0.6.6", "Using Flashinfer backend.", "FLASHINFER"),
    ("0.5.5-0.11.0 CPU", "Using Torch SDPA backend.", "TORCH_SDPA"),
    ("0.5.5 ROCm", "Using ROCmFlashAttention backend.", "ROCM_FLASH"),
    ("0.6.6", "Using Flash Attention backend.", "FLASH_ATTN"),
    ("0.7 XPU", "Using IPEX attention backend.", "IPEX"),
    ("0.7.3-0.11.0", "Using Flash Attention backend on V1 engine.", "FLASH_ATTN"),
    ("0.7.3-0.11.0", "Using Triton backend on V1 engine.", "TRITON_ATTN"),
    ("0.7.3-0.11.0", "Using FlashInfer backend on V1 engine.", "FLASHINFER"),
    ("0.7.3-0.11.0", "Using FlexAttention backend on V1 engine.", "FLEX_ATTENTION"),
    ("0.7.3-0.11.0", "Using XFormers backend on V1 engine.", "XFORMERS"),
    ("0.8-0.11", "Using Triton MLA backend on V1 engine.", "TRITON_MLA"),
    ("0.8-0.11", "Using FlashMLA backend on V1 engine.", "FLASHMLA"),
    ("0.8-0.11", "Using Cutlass MLA backend on V1 engine.", "CUTLASS_MLA"),
    ("0.11", "Using Sparse MLA backend on V1 engine.", "FLASHMLA_SPARSE"),
    ("0.10 ROCm", "Using Aiter Flash Attention backend on V1 engine.", "ROCM_AITER_FA"),
    (
        "0.10 B200",
        "Using FlashInfer backend with HND KV cache layout on V1 engine by default for Blackwell (SM 10.0) GPUs.",
        "FLASHINFER",
    ),
    ("0.11.2", "Using FLASH_ATTN backend.", "FLASH_ATTN"),
    ("0.11.2+ pinned", "Using AttentionBackendEnum.FLASHINFER backend.", "FLASHINFER"),
    ("0.11 pinned", "Using _Backend.TRITON_ATTN backend.", "TRITON_ATTN"),
    (
        "0.12.0-0.14.0",
        "Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'TRITON_ATTN']",
        "FLASH_ATTN",
    ),
    (
        "0.16.0-0.33.0",
        "Using TRITON_ATTN attention backend out of potential backends: ['TRITON_ATTN'].",
        "TRITON_ATTN",
    ),
    ("0.20+", "Using TURBOQUANT attention backend out of potential backends: ['TURBOQUANT'].", "TURBOQUANT"),
    ("0.19+ ROCm", "Using ROCM_AITER_FA backend (selected via --attention-backend).", "ROCM_AITER_FA"),
    ("0.19+ ROCm", "Using ROCM_ATTN backend out of potential backends: ['ROCM_ATTN', 'TRITON_ATTN'].", "ROCM_ATTN"),
    ("0.30+ CPU", "Using CPU_MLA backend.", "CPU_MLA"),
    ("0.30+ CPU", "Using AMX_MLA backend.", "AMX_MLA"),
    ("0.32 XPU", "Using Flash Attention MLA backend on XPU.", "FLASH_ATTN_MLA"),
    ("0.32 XPU", "Using TurboQuant attention backend.", "TURBOQUANT"),
]
# What is no decoder's attention backend, though it speaks of backends.
OTHERS = [
    "Using backend AttentionBackendEnum.FLASH_ATTN for vit attention",
    "Using AttentionBackendEnum.FLASH_ATTN for MMEncoderAttention.",
    "Using default backend AttentionBackendEnum.TORCH_SDPA for vit attention",
    "Using Flash Attention backend for ViT model.",
    "Using Torch SDPA backend for ViT model.",
    "Using AITER Flash Attention backend for ViT model.",
    "Using Flash Attention (Triton backend) for ViT model on RDNA.",
    "Using 'FLASHINFER_CUTLASS' NvFp4 MoE backend out of potential backends: ['FLASHINFER_CUTLASS', 'MARLIN']",
    "Using TRITON backend for Unquantized MoE",
    "Using FLASH_ATTN MLA prefill backend.",
    "Using Transformers modeling backend.",
    "Using native fused KDA decode backend.",
    "Using triton Mamba SSU backend.",
    "Using the target model's FLASH_ATTN attention backend for the draft",
    "Using FlashInfer for top-p & top-k sampling.",
    "Using Ray backend requires installation of ray.",
    "Using OOT custom backend for compilation.",
    "Using MoRIIO backend: XGMI",
    "Cannot use AttentionBackendEnum.FLASHINFER backend on CPU.",
]


@pytest.mark.parametrize(("versions", "line", "name"), BACKENDS)
def test_every_wording_of_the_backend(versions, line, name):
    seen = read_log(f"(EngineCore pid=3) INFO 11-30 14:45:29 [cuda.py:506] {line}", ENGINE)
    assert [(backend.name, backend.how, backend.line) for backend in seen.backends] == [(name, "log", line)]


@pytest.mark.parametrize("line", OTHERS)
def test_what_is_no_decoder_backend(line):
    assert read_log(f"INFO 11-30 14:45:29 [x.py:1] {line}", ENGINE).backends == ()


def test_a_vision_model_names_the_decoder_alone():
    text = "\n".join(
        (
            "INFO 05-01 19:55:53 [cuda.py:423] Using backend AttentionBackendEnum.FLASH_ATTN for vit attention",
            "INFO 05-01 19:55:53 [mm_encoder_attention.py:230] Using AttentionBackendEnum.FLASH_ATTN for "
            "MMEncoderAttention.",
            "INFO 05-01 19:55:54 [cuda.py:506] Using TRITON_ATTN attention backend out of potential backends: "
            "['TRITON_ATTN'].",
        )
    )
    assert [backend.name for backend in read_log(text, ENGINE).backends] == ["TRITON_ATTN"]


def test_several_groups_are_all_collected_and_workers_repeat_nothing():
    line = "INFO 11-30 14:45:29 [cuda.py:506] Using {0} attention backend out of potential backends: ['{0}']."
    text = "\n".join(
        f"(Worker_TP{rank} pid={rank}) {line.format(name)}" for rank in (0, 1) for name in ("TURBOQUANT", "FLASH_ATTN")
    )
    assert [backend.name for backend in read_log(text, ENGINE).backends] == ["TURBOQUANT", "FLASH_ATTN"]


def test_kernel_version_and_resolved_types_go_with_their_backend():
    resolved = (
        "FlashInfer resolved query dtypes: prefill=torch.bfloat16, decode=torch.bfloat16, "
        "decode_backend=flashinfer-native, kv_cache_dtype=fp8_e4m3, arch=sm_86"
    )
    text = "\n".join(
        (
            "Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN'].",
            "Using FlashAttention version 3",
            resolved,
        )
    )
    first, second = read_log(text, ENGINE).backends
    assert first.name == "FLASH_ATTN"
    assert first.line.endswith("| Using FlashAttention version 3")
    assert (second.name, second.line) == ("FLASHINFER", resolved)


@pytest.mark.parametrize(
    ("versions", "line", "tokens", "assumed", "device"),
    [
        ("0.5.5-0.6.6", "# GPU blocks: 27864, # CPU blocks: 2048", 445_824, True, "cuda"),
        ("0.5.5 CPU", "# CPU blocks: 100", 1_600, True, "cpu"),
        ("0.7.3 V1", "# GPU blocks: 100", 1_600, True, "cuda"),
        ("0.7.3-0.11.0 V0", "# cuda blocks: 27864, # CPU blocks: 2048", 445_824, True, "cuda"),
        ("0.8.0-0.26.0", "GPU KV cache size: 1,234,567 tokens", 1_234_567, False, "cuda"),
        (
            "0.28.0",
            "GPU KV cache size: 38,544 tokens, Maximum concurrency for 8,192 tokens per request: 4.70x",
            38_544,
            False,
            "cuda",
        ),
        (
            "0.30.0-0.33.0",
            "CPU KV cache size: 262,144 tokens, Maximum concurrency for 8,192 tokens per request: 32.00x",
            262_144,
            False,
            "cpu",
        ),
        (
            "0.30.0+",
            "XPU KV cache size: 512 tokens, Maximum concurrency for 8 tokens per request: 6x",
            512,
            False,
            "xpu",
        ),
        ("0.30.0+", "GPU + host KV cache size: 512 tokens", 512, False, "cuda"),
    ],
)
def test_every_wording_of_the_capacity(versions, line, tokens, assumed, device):
    seen = read_log(f"INFO 11-30 14:45:29 [x.py:1] {line}", ENGINE)
    assert (seen.capacity_tokens, seen.capacity_is_assumed, seen.device) == (tokens, assumed, device)


def test_a_told_block_size_makes_the_capacity_sure():
    text = (
        "INFO 09-22 20:31:06 api_server.py:585] args: Namespace(host=None, block_size=32, max_num_seqs=256, "
        "kv_cache_dtype='fp8', enable_prefix_caching=False)\n"
        "INFO 09-22 20:31:09 gpu_executor.py:122] # GPU blocks: 100, # CPU blocks: 2048\n"
    )
    seen = read_log(text, ENGINE)
    assert (seen.capacity_tokens, seen.capacity_is_assumed) == (3_200, False)
    assert seen.settings["max_num_seqs"] == "256"
    assert seen.settings["kv_cache_dtype"] == "fp8"


def test_the_least_of_several_ranks_is_the_capacity():
    text = "GPU KV cache size: 1,000 tokens\nGPU KV cache size: 900 tokens\n"
    assert read_log(text, ENGINE).capacity_tokens == 900


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("INFO 09-22 20:31:06 api_server.py:526] vLLM API server version 0.6.3.post1", "0.6.3.post1"),
        ("INFO 09-22 20:31:06 llm_engine.py:237] Initializing an LLM engine (v0.6.3) with config: model='m'", "0.6.3"),
        ("INFO 09-22 20:31:06 [llm_engine.py:240] Initializing a V0 LLM engine (v0.8.5) with config: x=1", "0.8.5"),
        (
            "(EngineCore pid=1) INFO 11-30 14:45:20 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config:",
            "0.32.0",
        ),
        (
            "(APIServer pid=7) INFO 11-30 14:45:05 [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0",
            "0.32.0",
        ),
    ],
)
def test_every_wording_of_the_version(line, expected):
    assert read_log(line, ENGINE).version == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0.32.0", (0, 32, 0)), ("v0.8.5.post1", (0, 8, 5)), ("0.32.0+cpu", (0, 32, 0)), ("dev", None), (None, None)],
)
def test_version_numbers(text, expected):
    assert version_numbers(text) == expected


TELLING = [
    "--kv-cache-dtype is not supported by the V1 Engine. Falling back to V0. ",
    "Cannot use FlashAttention-2 backend for FP8 KV cache.",
    "Cannot use FlashAttention backend for FP8 KV cache.",
    "Please use FlashInfer backend with FP8 KV Cache for better performance by setting environment variable  "
    "VLLM_ATTENTION_BACKEND=FLASHINFER",
    "--block-size 64 precluded higher-priority backend(s) FLASHINFER. Using FLASH_ATTN instead, which may result in "
    "reduced performance.",
    "Checkpoint does not provide a q scaling factor. Setting it to k_scale.",
    "Using KV cache scaling factor 1.0 for fp8_e4m3. If this is unintended, verify that k/v_scale are properly set.",
    "FlashInfer XQA decode does not support head_dim=256; reverting this KV-cache group to native FlashInfer decode.",
    "TurboQuant is not yet compatible with FlashAttention >= 3. Overriding flash_attn_version to 2.",
    "Cannot use AttentionBackendEnum.FLASHINFER backend on CPU.",
    "Attention backend FLASHINFER is unavailable",
    "Some attention backends are not valid for cuda with X. Reasons: {FLASH_ATTN: [kv_cache_dtype not supported]}.",
]


@pytest.mark.parametrize("line", TELLING)
def test_lines_that_belong_in_a_report(line):
    seen = read_log(f"(Worker pid=1) WARNING 11-30 14:45:29 [x.py:1] {line}\n" * 2, ENGINE)
    assert seen.telling == (line.rstrip(),)


def test_ordinary_lines_are_no_warnings():
    text = (
        "INFO 11-30 14:45:29 [x.py:1] Using LBHNC KV cache layout.\n"
        "WARNING 11-30 14:45:29 [x.py:1] FlashInfer is not available. Falling back to the PyTorch-native sampling.\n"
    )
    assert read_log(text, ENGINE).telling == ()


@pytest.mark.parametrize(
    ("line", "gib"),
    [("Available KV cache memory: 13.45 GiB", 13.45), ("Explicitly set (1.0/8.21) GiB for KV cache on node 0.", 1.0)],
)
def test_kv_memory(line, gib):
    assert read_log(line, ENGINE).kv_memory_bytes == int(gib * 2**30)


def test_the_type_that_is_really_stored():
    line = "INFO 11-30 14:45:29 [x.py:1] Using fp8_ds_mla KV cache format for FLASHMLA_SPARSE backend."
    assert read_log(line, ENGINE).effective_dtype == "fp8_ds_mla"


def test_a_log_with_several_starts_counts_from_the_last():
    start = "INFO 11-30 14:45:05 [api_utils.py:286] non-default args: {{'kv_cache_dtype': '{}'}}\n"
    size = "INFO 11-30 14:45:29 [x.py:1] GPU KV cache size: {} tokens\n"
    seen = read_log(start.format("auto") + size.format("1,000") + start.format("fp8") + size.format("2,000"), ENGINE)
    assert (seen.settings["kv_cache_dtype"], seen.capacity_tokens) == ("fp8", 2_000)


def test_the_configuration_tells_the_device_where_the_capacity_speaks_of_a_gpu_on_any():
    text = (
        "INFO 09-22 20:31:06 [core.py:71] Initializing a V1 LLM engine (v0.11.0) with config: model='m', "
        "kv_cache_dtype=auto, device_config=cpu, served_model_name=m\n"
        "INFO 09-22 20:31:09 [kv_cache_utils.py:864] GPU KV cache size: 4,096 tokens\n"
    )
    assert read_log(text, ENGINE).device == "cpu"
    rocm = text.replace("=cpu", "=cuda") + "INFO 09-22 20:31:09 [x.py:1] Using ROCM_ATTN backend.\n"
    assert read_log(rocm, ENGINE).device == "rocm"


@pytest.mark.parametrize(
    "line",
    [
        "GPU KV cache size: , tokens",
        "GPU KV cache size: ,,, tokens",
        "GPU KV cache size: " + "9" * 5000 + " tokens",
        "# GPU blocks: " + "9" * 5000,
        "# GPU blocks: " + "9" * 5000 + ", # CPU blocks: 1",
        "Available KV cache memory: . GiB",
        "Available KV cache memory: 1.2.3 GiB",
        "Available KV cache memory: " + "9" * 400 + " GiB",
        "Explicitly set (./1) GiB for KV cache",
    ],
)
def test_a_number_that_is_none_is_not_known(line):
    seen = read_log(line, ENGINE)
    assert (seen.capacity_tokens, seen.kv_memory_bytes) == (None, None)


@pytest.mark.parametrize("size", ["²", "9" * 5000, "x"])
def test_a_block_size_that_is_no_number_is_assumed(size):
    seen = read_log(f"non-default args: {{'block_size': {size}}}\n# GPU blocks: 10\n", ENGINE)
    assert (seen.capacity_tokens, seen.capacity_is_assumed) == (160, True)

"""The wordings of vLLM's log, by version: which backend, how large a cache, what went another way than asked.

A message is searched after its header ("INFO 11-30 14:45:05 [cuda.py:506] ") is taken off.
"""

import re

from loadgen.engines.engine import LogPatterns

# What a log line calls a backend -> its name in vllm/v1/attention/backends/registry.py. Names that are not here and
# look like the registry's (capitals and underscores) are kept as they are.
BACKEND_NAMES = {
    "flash attention": "FLASH_ATTN",
    "flashattention": "FLASH_ATTN",
    "flash attention mla": "FLASH_ATTN_MLA",
    "flashattn mla": "FLASH_ATTN_MLA",
    "flashinfer": "FLASHINFER",
    "flashinfer mla": "FLASHINFER_MLA",
    "flashmla": "FLASHMLA",
    "flexattention": "FLEX_ATTENTION",
    "cutlass mla": "CUTLASS_MLA",
    "triton": "TRITON_ATTN",
    "triton attention": "TRITON_ATTN",
    "triton mla": "TRITON_MLA",
    "sparse mla": "FLASHMLA_SPARSE",
    "xpu mla sparse": "XPU_MLA_SPARSE",
    "xformers": "XFORMERS",
    "torch sdpa": "TORCH_SDPA",
    "rocmflashattention": "ROCM_FLASH",
    "rocm attention": "ROCM_ATTN",
    "aiter flash attention": "ROCM_AITER_FA",
    "aiter mla": "ROCM_AITER_MLA",
    "aiter unified attention": "ROCM_AITER_UNIFIED_ATTN",
    "ipex": "IPEX",
    "pallas": "PALLAS",
    "pallas v1": "PALLAS",
    "openvino": "OPENVINO",
    "hpuattention": "HPU_ATTN",
    "blocksparseflashattention": "BLOCK_SPARSE_FLASH_ATTN",
    "dualchunkflashattention": "DUAL_CHUNK_FLASH_ATTN",
    "tree attention": "TREE_ATTN",
    "turboquant": "TURBOQUANT",
    "differential flash attention": "DIFFERENTIAL_FLASH_ATTN",
}
_WORDED = "|".join(re.escape(name) for name in sorted(BACKEND_NAMES, key=len, reverse=True))
# Only what carries a registry-like name: "Using NCCL backend." or "Using Ray backend." is no attention backend.
_REGISTRY = r"[A-Z0-9_]*(?:ATTN|ATTENTION|MLA|FLASHINFER|QUANT|XFORMERS|SDPA|SPARSE|B12X|_MSA|PALLAS|IPEX)[A-Z0-9_]*"
# A name that is told to be an attention backend may be any.
_ANY = r"[A-Za-z0-9_]+"

LOG = LogPatterns(
    version=tuple(
        map(
            re.compile,
            (
                r"Initializing an? (?:V[01] )?LLM engine \(v([0-9][^)\s]*)\)",
                r"vLLM API server version v?([0-9]\S*)",
                r"[█▀▄]\s+version (?:v?)([0-9]\S*)",
            ),
        )
    ),
    backends=tuple(
        map(
            re.compile,
            (
                # 0.12.0 and later: "Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', ...]."
                rf"^Using (?P<name>{_ANY}) attention backend out of potential backends\b",
                # ROCm since 0.19: no word "attention". MoE layers say the same with their kind: "'MARLIN' NvFp4 MoE".
                r"^Using (?P<name>[A-Z0-9_]+) backend out of potential backends: \[[A-Z0-9_', ]*\]\.?$",
                r"^Using (?P<name>[A-Z0-9_]+) backend \(selected via --attention-backend\)\.?$",
                # 0.11.2 and later, asked for by name: the enumeration's member is printed.
                rf"^Using (?:AttentionBackendEnum|_Backend)\.(?P<name>{_ANY}) backend\.?$",
                # 0.5.5 to 0.11: worded names, with and without the engine's generation.
                rf"^(?i:Using (?P<name>{_WORDED})(?: attention)? backend"
                r"(?: with \w+ KV cache layout)?(?: on (?:V1 engine|XPU)\b.*)?)\.?$",
                # 0.11.2 ("Using FLASH_ATTN backend.") and platforms that name the registry's member.
                rf"^Using (?P<name>{_REGISTRY})(?: attention)? backend(?: on V1 engine)?\.?$",
            ),
        )
    ),
    backend_details={
        "FLASH_ATTN": re.compile(r"^Using FlashAttention version \d"),
        "FLASHINFER": re.compile(
            r"^FlashInfer resolved query dtypes:|^Using FlashInfer \w+ backend for NVFP4 KV cache"
        ),
    },
    backend_names=BACKEND_NAMES,
    capacity_tokens=(re.compile(r"^(?P<device>[A-Za-z]+)(?: \+ host)? KV cache size: (?P<count>\d[\d,]{,24}) tokens"),),
    capacity_blocks=(
        re.compile(r"^# (?P<device>[A-Za-z]+) blocks: (?P<count>\d{1,18}), # CPU blocks: \d"),
        re.compile(r"^# (?P<device>[A-Za-z]+) blocks: (?P<count>\d{1,18})$"),
    ),
    kv_memory_gib=(
        re.compile(r"^Available KV cache memory: (\d{1,9}(?:\.\d{1,9})?) GiB"),
        re.compile(r"^Explicitly set \((\d{1,9}(?:\.\d{1,9})?)/[\d.]+\) GiB for KV cache"),
    ),
    effective_dtype=(re.compile(r"^Using (\w+) KV cache format for \S+ backend"),),
    settings=(
        re.compile(r"^non-default args:"),
        re.compile(r"^args: Namespace\("),
        re.compile(r"LLM engine \(v[^)]*\) with config:"),
    ),
    telling=tuple(
        map(
            re.compile,
            (
                r"Falling back to V0",
                r"Cannot use FlashAttention(?:-2)? backend for FP8 KV cache",
                r"Please use FlashInfer backend with FP8 KV Cache",
                r"precluded higher-priority backend",
                r"does not provide a q scaling factor",
                r"KV cache scaling factor 1\.0",
                r"reverting this KV-cache group to native FlashInfer",
                r"Overriding flash_attn_version to 2",
                r"Cannot use \S+ backend on (?:CPU|XPU)",
                r"Attention backend \S+ is unavailable",
                r"Some attention backends are not valid",
                r"Found incompatible backend",
                r"calculate[-_]kv[-_]scales.*(?:deprecated|removed|ignored)",
                r"not supported by the CPU attention backend",
            ),
        )
    ),
)

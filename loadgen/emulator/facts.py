"""What an emulated server would be found to be: the same `ServerFacts` that are read from its front and its log."""

from loadgen.emulator.arm import Emulated
from loadgen.records import BackendSeen, HostFacts, ServerFacts

ENGINE_NAME = "emulator"


def facts(arm: Emulated, *, argv: tuple[str, ...] = ()) -> ServerFacts:
    """The facts of a simulated process; there is no URL and nothing to wait for."""
    profile, limits = arm.profile, arm.limits
    host = HostFacts(gpus=(profile.gpu,), cpu=None) if profile.gpu else None
    return ServerFacts(
        engine=ENGINE_NAME,
        version=profile.version,
        model=arm.served_name,
        max_model_len=arm.max_model_len,
        argv=argv,
        kv_dtype_asked=arm.flags.get("kv-cache-dtype"),
        kv_dtype=arm.kv_dtype,
        kv_dtype_how="endpoint",
        capacity_tokens=arm.capacity_tokens,
        capacity_how="endpoint",
        block_tokens=limits.block_tokens,
        kv_memory_bytes=int(arm.kv_cache_bytes),
        bytes_per_token=arm.kv_cache_bytes / arm.capacity_tokens,
        max_num_seqs=limits.max_num_seqs,
        prefix_caching=limits.prefix_caching,
        backends=(BackendSeen(name=arm.format.backend, how="log"),),
        device=profile.device,
        host=host,
        profile=profile.name,
        profile_source=profile.source or None,
    )

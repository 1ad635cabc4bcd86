"""What a server really is: read back from its endpoints and its log, never from the flags that it was given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx

from loadgen.engines.engine import Engine
from loadgen.engines.table import ENGINES
from loadgen.errors import ServerError
from loadgen.records import BackendSeen, HostFacts, ServerFacts
from loadgen.server.address import is_loopback, server_root
from loadgen.server.exposition import labels_of
from loadgen.server.fetch import Fetched, fetch
from loadgen.server.log_facts import LogFacts, read_log, version_numbers

How = Literal["log", "endpoint", "assumed", "unknown"]

TIMEOUT_S = 10.0
_EXACT_ENOUGH_BYTES = 2**30  # a log prints GiB with two digits: below this, a quotient of it would say nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the endpoints told; empty where there is no URL."""

    version: str | None = None
    model: str | None = None
    owner: str | None = None
    max_model_len: int | None = None
    cache: Mapping[str, str] = field(default_factory=dict)


async def read_facts(
    *,
    url: str | None,
    log_text: str | None,
    engine: Engine,
    argv: Sequence[str] = (),
    ready_after_s: float | None = None,
    host: HostFacts | None = None,
    headers: Mapping[str, str] | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> ServerFacts:
    """The facts of a server that runs, from its endpoints, its log, or both.

    Endpoints win over the log where both tell, except that a log line on the type really stored wins over the
    configuration. `argv` says what was asked, never what is. An attention backend is told by logs alone; an empty
    `backends` means not known. `bytes_per_token` is per GPU where the model is spread over several. An emulated server
    is called one, whatever engine it was taken for. Raises ServerError if `url` does not answer.
    """
    answers = await _ask(server_root(url), engine, headers or {}, transport) if url else Answers()
    seen = read_log(log_text, engine) if log_text is not None else LogFacts(settings={}, config={})
    return assembled(
        answers,
        seen,
        engine=engine,
        has_log=log_text is not None,
        argv=argv,
        url=url,
        ready_after_s=ready_after_s,
        host=host,
    )


def assembled(
    answers: Answers,
    seen: LogFacts,
    *,
    engine: Engine,
    has_log: bool,
    argv: Sequence[str] = (),
    url: str | None = None,
    ready_after_s: float | None = None,
    host: HostFacts | None = None,
) -> ServerFacts:
    """`read_facts` without the asking."""
    version = answers.version or seen.version
    dtype, dtype_how = _dtype(answers, seen)
    capacity, capacity_how = _capacity(answers, seen)
    memory = _whole(answers.cache.get("kv_cache_memory_bytes")) or seen.kv_memory_bytes
    exact = "kv_cache_memory_bytes" in answers.cache or (memory or 0) >= _EXACT_ENOUGH_BYTES
    return ServerFacts(
        engine=next((one.name for one in ENGINES.values() if one.owner and one.owner == answers.owner), engine.name),
        version=version,
        url=url,
        model=answers.model or seen.settings.get("served_model_name") or seen.config.get("served_model_name"),
        max_model_len=answers.max_model_len or _whole(seen.config.get("max_seq_len")),
        argv=tuple(argv),
        kv_dtype_asked=_asked(engine, argv, seen),
        kv_dtype=dtype,
        kv_dtype_how=dtype_how,
        capacity_tokens=capacity,
        capacity_how=capacity_how,
        block_tokens=_whole(answers.cache.get("block_size")) or _whole(seen.settings.get("block_size")),
        kv_memory_bytes=memory,
        bytes_per_token=memory / capacity if memory and capacity and exact else None,
        max_num_seqs=_whole(flag_value(argv, "max-num-seqs") or seen.settings.get("max_num_seqs")),
        prefix_caching=_truth(answers.cache.get("enable_prefix_caching") or seen.config.get("enable_prefix_caching")),
        backends=seen.backends or _silent(engine, version, seen.device, has_log=has_log),
        device=seen.device,
        warnings=(*seen.telling, *_remarks(engine, version, seen, dtype, answers.cache)),
        ready_after_s=ready_after_s,
        host=host,
    )


def flag_value(argv: Sequence[str], flag: str) -> str | None:
    """The value of --flag in a command line ("--flag value" or "--flag=value", dashes or underscores); last wins."""
    value = None
    for number, argument in enumerate(argv):
        name, equals, rest = argument.partition("=")
        if name.startswith("--") and name[2:].replace("_", "-") == flag:
            value = rest if equals else argv[number + 1] if number + 1 < len(argv) else None
    return value


def _asked(engine: Engine, argv: Sequence[str], seen: LogFacts) -> str | None:
    if engine.kv_dtype_flag is None:
        return None
    asked = flag_value(argv, engine.kv_dtype_flag) or seen.settings.get(engine.kv_dtype_flag.replace("-", "_"))
    return asked or ("auto" if argv or seen.settings else None)


def _dtype(answers: Answers, seen: LogFacts) -> tuple[str | None, How]:
    if seen.effective_dtype is not None:
        return seen.effective_dtype, "log"
    if (told := answers.cache.get("cache_dtype")) is not None:
        return told, "endpoint"
    if (told := seen.config.get("kv_cache_dtype") or seen.settings.get("kv_cache_dtype")) is not None:
        return told, "log"
    return None, "unknown"


def _capacity(answers: Answers, seen: LogFacts) -> tuple[int | None, How]:
    tokens = _whole(answers.cache.get("kv_cache_size_tokens"))  # since vLLM 0.24
    if tokens is not None:
        return tokens, "endpoint"
    if seen.capacity_tokens is not None and not seen.capacity_is_assumed:
        return seen.capacity_tokens, "log"
    blocks, size = _whole(answers.cache.get("num_gpu_blocks")), _whole(answers.cache.get("block_size"))
    if blocks is not None and size is not None:
        return blocks * size, "endpoint"
    return seen.capacity_tokens, "unknown" if seen.capacity_tokens is None else "assumed"


def _silent(engine: Engine, version: str | None, device: str | None, *, has_log: bool) -> tuple[BackendSeen, ...]:
    numbers = version_numbers(version)
    if not has_log or numbers is None:
        return ()
    return tuple(
        BackendSeen(name=silence.backend, how="assumed")
        for silence in engine.silences
        if silence.device == device and silence.from_version <= numbers < silence.to_version
    )


def _remarks(
    engine: Engine, version: str | None, seen: LogFacts, dtype: str | None, cache: Mapping[str, str]
) -> list[str]:
    """What the server does not say and a reader must know."""
    remarks = []
    numbers = version_numbers(version) or ()
    for wrong in engine.known_wrong:
        applies = dtype in wrong.dtypes and wrong.from_version <= numbers < wrong.to_version
        marked = wrong.when_log_has is None or any(wrong.when_log_has.search(told) for told in seen.marks)
        if applies and marked and wrong.device in (None, seen.device):
            remarks.append(wrong.sentence.format(dtype=dtype, version=version))
    if dtype == "auto":
        remarks.append("the KV cache's type is auto: a checkpoint may make that fp8; ask for bfloat16 to be sure")
    if cache.get("kv_cache_dtype_skip_layers", "[]") not in ("[]", "None"):
        remarks.append(f"layers that keep an unquantized cache: {cache['kv_cache_dtype_skip_layers']}")
    return remarks


async def _ask(
    root: str, engine: Engine, headers: Mapping[str, str], transport: httpx.AsyncBaseTransport | None
) -> Answers:
    async with httpx.AsyncClient(
        headers=dict(headers), timeout=TIMEOUT_S, transport=transport, trust_env=not is_loopback(root)
    ) as client:
        try:
            models = _json(await fetch(client, f"{root}/v1/models"))
            version = _json(await fetch(client, root + engine.version_path)) if engine.version_path else None
            metrics = await fetch(client, root + engine.metrics_path) if engine.config_metric else None
        except httpx.HTTPError as error:
            raise ServerError(
                f"{root}: nothing answers there ({error or type(error).__name__}); is the server up?"
            ) from error
    served = models.get("data") if isinstance(models, dict) else None
    first: dict[str, Any] = served[0] if isinstance(served, list) and served and isinstance(served[0], dict) else {}
    cache = (
        labels_of(metrics.text, engine.config_metric)
        if metrics and _is_good(metrics) and engine.config_metric
        else None
    )
    limit = first.get("max_model_len")
    return Answers(
        version=_string(version.get("version")) if isinstance(version, dict) else None,
        model=_string(first.get("id")),
        owner=_string(first.get("owned_by")),
        max_model_len=limit if isinstance(limit, int) else None,
        cache=cache or {},
    )


def _json(answer: Fetched) -> Any:
    return answer.json() if _is_good(answer) else None


def _is_good(answer: Fetched) -> bool:
    return 200 <= answer.status < 300


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 20 else None


def _truth(text: str | None) -> bool | None:
    return {"true": True, "false": False}.get((text or "").lower())

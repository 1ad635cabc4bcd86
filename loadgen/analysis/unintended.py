"""Do the arms differ in more than the experiment? Then the difference measured is that of all of it together."""

from collections.abc import Iterator, Sequence

from loadgen.analysis.study import Study
from loadgen.analysis.wording import listed
from loadgen.records import ServerFacts

WHERE_ONE_LISTENS = frozenset({"port", "host", "uds", "log-file", "log", "config", "served-model-name"})
UNQUANTIZED = frozenset({"bfloat16", "bf16", "float16", "fp16", "half", "float32", "fp32", "f16", "f32"})
SAME_DTYPE = {"fp8": "fp8_e4m3", "bf16": "bfloat16", "fp16": "float16", "half": "float16", "f16": "float16"}


def unintended(study: Study) -> tuple[str, ...]:
    """What differs between base and test, or between the blocks of one arm, though nobody asked for it."""
    if study.test is None:
        return ()
    base, test = study.facts(study.base), study.facts(study.test)
    return (
        *_within_arms(study),
        *(f"{name}: {study.base} {a}, {study.test} {b}" for name, a, b in _facts(base, test)),
        *_flags(study, base, test),
        *_plans(study),
    )


def _facts(base: ServerFacts, test: ServerFacts) -> Iterator[tuple[str, object, object]]:
    """Facts that both servers told and that are not the same."""
    pairs: list[tuple[str, object, object]] = [
        (name.replace("_", " "), getattr(base, name), getattr(test, name))
        for name in ("engine", "version", "model", "max_model_len", "prefix_caching", "device")
    ]
    if base.host is not None and test.host is not None:
        pairs += [
            (label, getattr(base.host, name), getattr(test.host, name))
            for name, label in (("driver", "driver"), ("cuda", "CUDA"), ("gpus", "GPUs"), ("cpu", "CPU"))
        ]
    for name, a, b in pairs:
        if a not in (None, ()) and b not in (None, ()) and a != b:
            yield name, a, b


def _within_arms(study: Study) -> Iterator[str]:
    """A server that was another one in a later block: an upgrade between restarts, another GPU."""
    for arm in (study.base, study.test or ""):
        blocks = study.blocks[arm]
        for block in blocks[1:]:
            changed = [f"{name} {a}, later {b}" for name, a, b in _facts(blocks[0].facts, block.facts)]
            changed += [
                f"{name} {a}, later {b}"
                for name, a, b in (
                    ("capacity", blocks[0].facts.capacity_tokens, block.facts.capacity_tokens),
                    ("KV dtype", blocks[0].facts.kv_dtype, block.facts.kv_dtype),
                )
                if a is not None and b is not None and _far(a, b)
            ]
            if changed:
                yield f"{arm}: its server changed between blocks: {listed(changed)}"
                break


def _far(a: object, b: object) -> bool:
    """Unequal; of numbers, by more than 5 % (memory profiling gives a few blocks more or less at each start)."""
    if isinstance(a, int | float) and isinstance(b, int | float):
        return abs(a - b) > 0.05 * max(abs(a), abs(b))
    return a != b


def _flags(study: Study, base: ServerFacts, test: ServerFacts) -> Iterator[str]:
    if not base.argv or not test.argv:
        return
    own = {flag_name(key) for arm in (study.base, study.test or "") for key in study.spec(arm).flags}
    first, second = flags(base.argv), flags(test.argv)
    for name in sorted({*first, *second} - own - WHERE_ONE_LISTENS):
        a, b = first.get(name), second.get(name)
        if a != b:
            yield f"--{name}: {study.base} {_shown(a)}, {study.test} {_shown(b)}"


def flag_name(key: str) -> str:
    """A flag's name without dashes before it, with dashes in it."""
    return key.lstrip("-").replace("_", "-")


def flags(argv: Sequence[str]) -> dict[str, str]:
    """The long options of a command line, values joined; an option without a value is ""."""
    found: dict[str, str] = {}
    name: str | None = None
    for word in argv:
        if word.startswith("--"):
            key, _, value = word.partition("=")
            name = flag_name(key)
            found[name] = value
        elif name is not None:
            found[name] = f"{found[name]} {word}".strip()
    return found


def _shown(value: str | None) -> str:
    return "not given" if value is None else value or "given"


def _plans(study: Study) -> Iterator[str]:
    digests = {arm: {b.manifest.plan_digest for b in study.blocks[arm]} for arm in (study.base, study.test or "")}
    if len(set().union(*digests.values())) > 1:
        shown = "; ".join(f"{arm} {listed(sorted(found))}" for arm, found in digests.items())
        yield f"the plan: blocks did not all do the same plan ({shown})"


def doubts(study: Study) -> tuple[str, ...]:
    """Warnings about what the arms are: an unconfirmed baseline, a dtype that is not in effect, two changes at once."""
    return (
        *_dtypes(study),
        *(_baseline(study) if study.test is not None else ()),
        *(_two_changes(study) if study.test is not None else ()),
    )


def dtype(name: str | None) -> str | None:
    """One name for dtypes that are the same."""
    return None if name is None else SAME_DTYPE.get(name.lower(), name.lower())


def quantized(facts: ServerFacts) -> bool | None:
    """Whether the cache holds a quantized format; None if that is not known."""
    name = facts.kv_dtype
    if name is None or name == "auto" or facts.kv_dtype_how == "unknown":
        return None
    return name.lower() not in UNQUANTIZED


def _dtypes(study: Study) -> Iterator[str]:
    for arm in study.labels:
        facts = study.facts(arm)
        asked, found = dtype(facts.kv_dtype_asked), dtype(facts.kv_dtype)
        if asked is not None and found is not None and asked != found and asked != "auto":
            yield f"{arm}: a {facts.kv_dtype_asked} cache was asked for, the server holds {facts.kv_dtype}"


def _baseline(study: Study) -> Iterator[str]:
    facts = study.facts(study.base)
    found = quantized(facts)
    if found is None:
        yield (
            f"{study.base}: not confirmed that the base's cache is unquantized (dtype {facts.kv_dtype or 'unknown'}): "
            "a checkpoint can make `auto` fp8; start the base with an explicit bfloat16"
        )
    elif found:
        yield f"{study.base}: the base's cache is itself quantized ({facts.kv_dtype})"


def _two_changes(study: Study) -> Iterator[str]:
    base, test = study.spec(study.base).flags, study.spec(study.test or "").flags
    changed = sorted(k for k in {flag_name(k) for k in (*base, *test)} if _flag(base, k) != _flag(test, k))
    if len(changed) > 1:
        yield (
            f"the arms differ in {len(changed)} settings ({listed(changed)}): the difference is that of all of them; "
            "a third arm with one of them separates them"
        )
    a, b = study.facts(study.base).block_tokens, study.facts(study.test or "").block_tokens
    if a is not None and b is not None and a != b:
        yield f"cache blocks hold {a} tokens in {study.base} and {b} in {study.test}"


def _flag(settings: dict[str, str], name: str) -> str | None:
    return next((value for key, value in settings.items() if flag_name(key) == name), None)

"""What can become of a comparison: one arm, too few blocks, unknown facts, failures, odd names, nothing."""

import msgspec
from report_example import comparison, estimate
from report_grid import grid_maps, grid_stages

from loadgen.records import ArmSpec, BackendSeen, Check, Estimate, Headline, Report, ServerFacts


def one_arm() -> Report:
    """`loadgen run`: one server, nothing to compare with."""
    whole = comparison()
    return msgspec.structs.replace(
        whole,
        title="Load on http://127.0.0.1:8100",
        command="loadgen run kv-demo --url http://127.0.0.1:8100",
        test=None,
        order=("bf16",),
        headlines=(),
        arms=whole.arms[:1],
        summaries=tuple(summary for summary in whole.summaries if summary.arm == "bf16"),
        differences=(),
        decomposition=None,
        findings=(),
        checklist=(),
        curves=tuple(curve for curve in whole.curves if curve.arm == "bf16"),
        warnings=(),
    )


def too_few_blocks() -> Report:
    """One block per arm: no interval, no verdict."""
    whole = comparison()
    alone = "one block per arm: no interval"

    def bare(figure: Estimate) -> Estimate:
        return msgspec.structs.replace(figure, lo=None, hi=None, n=1, warnings=(alone,))

    return msgspec.structs.replace(
        whole,
        order=("bf16", "fp8"),
        headlines=tuple(
            msgspec.structs.replace(h, verdict="cannot tell", sentence="One block per arm carries no interval.")
            for h in whole.headlines
        ),
        differences=tuple(
            msgspec.structs.replace(
                d,
                base=bare(d.base),
                test=bare(d.test),
                ratio=bare(d.ratio),
                verdict="cannot tell",
                detectable_ratio=None,
                blocks_needed=4,
            )
            for d in whole.differences
        ),
        arms=tuple(msgspec.structs.replace(arm, blocks=1) for arm in whole.arms),
        decomposition=None,
        findings=tuple(
            msgspec.structs.replace(f, verdict="cannot tell", advice="Run with `repeats: 4`.") for f in whole.findings
        ),
        warnings=("1 + 1 blocks: at least 2 per arm are needed for an interval; 4 decide a difference of 1.36×.",),
    )


def unknown_facts() -> Report:
    """Servers that tell nothing about themselves, and quantities that nobody exported."""
    whole = comparison()
    return msgspec.structs.replace(
        whole,
        arms=tuple(
            msgspec.structs.replace(
                arm,
                spec=ArmSpec(name=arm.name, engine="unknown", url="http://10.0.0.7:8000"),
                facts=ServerFacts(engine="unknown", backends=(BackendSeen(name="unknown", how="unknown"),)),
            )
            for arm in whole.arms
        ),
        differences=tuple(
            msgspec.structs.replace(
                d, base=estimate(None), test=estimate(None), ratio=Estimate(center=None), verdict="cannot tell"
            )
            if d.quantity in {"kv_usage_peak_ratio", "running_mean", "waiting_mean", "preemptions"}
            else d
            for d in whole.differences
        ),
        unintended=("engine version: unknown on both arms", "driver: 570.1 on bf16, 575.3 on fp8"),
        client_host=None,
        packages={},
        plan_notes=(),
    )


def failures() -> Report:
    """Requests failed, a block was cut off, the client was late: nothing may be concluded, and the report says so."""
    whole = comparison()
    bad = msgspec.structs.replace(
        whole.arms[1],
        blocks=3,
        requests={"one": (48, 48, 41, 7), "full": (256, 201, 190, 11)},
        failures={"timeout": 12, "status": 4, "truncated": 2},
    )
    return msgspec.structs.replace(
        whole,
        headlines=tuple(
            msgspec.structs.replace(
                h, verdict="cannot tell", sentence="The arms did unequal work: 18 requests failed on fp8."
            )
            for h in whole.headlines
        ),
        differences=tuple(
            msgspec.structs.replace(
                d,
                ratio=Estimate(center=None),
                verdict="cannot tell",
                blocks_needed=None,
                note="not compared: the work differs: 18 requests failed on fp8",
            )
            for d in whole.differences
        ),
        arms=(whole.arms[0], bad),
        innocence=(
            Check(name="event-loop lag", passed=False, figure="max 312 ms, limit 25 ms"),
            Check(name="send lag", passed=False, figure="p99 95 ms, limit 10 ms"),
        ),
        warnings=(
            "fp8: 18 of 249 requests failed (12 timeout, 4 status, 2 truncated): see samples.jsonl.",
            "block 6 (fp8) ended early: server_died. Read servers/fp8-6.log.",
            "The client was late: give it a core of its own, or fewer streams.",
        ),
    )


EVIL = '<img src=x onerror="alert(1)"></script><script>alert(2)</script>[bold red]&amp;'


def hostile() -> Report:
    """Names that would be markup somewhere: HTML, script ends, rich tags, terminal codes, label quotes."""
    whole = renamed(comparison(), base=EVIL, test='fp8"\\\n\x1b[31m', stage="<b>full</b>")
    return msgspec.structs.replace(
        whole,
        title=EVIL,
        command=f"loadgen compare '{EVIL}'",
        scenario=EVIL,
        scenario_text=EVIL,
        warnings=(EVIL, "\x1b]0;owned\x07"),
        unintended=(EVIL,),
    )


def long_names() -> Report:
    """An arm and a stage whose names do not fit."""
    return renamed(
        comparison(),
        base="bfloat16-flashinfer-0.6.1-hopper-sxm-pinned",
        test="fp8_e4m3-per-token-head-flashinfer-0.6.1-hopper-sxm",
        stage="saturated-agentic-coding-traffic-with-shared-prefix",
    )


def empty_stages() -> Report:
    """Interrupted before anything was measured."""
    whole = comparison()
    return msgspec.structs.replace(
        whole,
        headlines=(),
        arms=tuple(msgspec.structs.replace(arm, blocks=0, requests={}, failures={}) for arm in whole.arms),
        summaries=(),
        differences=(),
        decomposition=None,
        findings=(),
        checklist=(),
        innocence=(),
        curves=(),
        order=(),
        warnings=("interrupted before the first block ended: nothing to judge",),
    )


def virtual_time() -> Report:
    """`loadgen simulate`: no server ran and no client."""
    whole = comparison()
    told = {"profile": "h100-llama3.1-8b", "profile_source": "a vendor's figures, 2026-04-22"}
    return msgspec.structs.replace(
        whole,
        command="loadgen simulate kv-demo --arm bf16 --arm fp8 --profile h100-llama3.1-8b",
        simulated=True,
        virtual_time=True,
        arms=tuple(
            msgspec.structs.replace(arm, facts=msgspec.structs.replace(arm.facts, url=None, **told))
            for arm in whole.arms
        ),
        innocence=(),
        client_host=None,
    )


def grid() -> Report:
    """A map of contexts and concurrencies beside one stream."""
    whole = comparison()
    said = "Over the grid fp8 has better output throughput in 5 of 11 cells, worse in 3, 3 not decided."
    return msgspec.structs.replace(
        whole,
        headlines=(whole.headlines[0], Headline(role="grid", stage="grid", verdict="trade-off", sentence=said)),
        stages=(whole.stages[0], *grid_stages()),
        differences=tuple(d for d in whole.differences if d.stage == "one"),
        summaries=tuple(s for s in whole.summaries if s.stage == "one"),
        curves=tuple(c for c in whole.curves if c.stage == "one"),
        maps=grid_maps(),
    )


def renamed(report: Report, *, base: str, test: str, stage: str) -> Report:
    """The same report with other names for its arms and for its saturated stage."""
    names = {"bf16": base, "fp8": test, "full": stage}

    def walk(value: object, key: str = "") -> object:
        if isinstance(value, dict):
            return {names.get(k, k) if key == "requests" else k: walk(v, k) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [walk(v, key) for v in value]
        return names.get(value, value) if isinstance(value, str) and key in NAMED else value

    return msgspec.convert(walk(msgspec.to_builtins(report)), Report)


NAMED = {"arm", "base", "test", "name", "stage", "order"}

VARIANTS = {
    "comparison": comparison,
    "one_arm": one_arm,
    "too_few_blocks": too_few_blocks,
    "unknown_facts": unknown_facts,
    "failures": failures,
    "hostile": hostile,
    "long_names": long_names,
    "empty_stages": empty_stages,
    "virtual_time": virtual_time,
    "grid": grid,
}

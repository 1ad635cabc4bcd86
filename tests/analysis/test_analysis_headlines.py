from types import SimpleNamespace

import pytest

from loadgen.analysis.compare import Comparison
from loadgen.analysis.headlines import Family, closed_loop, families, headlines, latency_rules
from loadgen.records import Difference, Estimate, StageSpec

SATURATED = StageSpec(name="s", role="saturated", concurrency=8)


def difference(quantity, verdict, center=1.2, stage="s"):
    estimate = Estimate(center=center, lo=center / 1.05, hi=center * 1.05, n=4)
    return Difference(quantity=quantity, stage=stage, base=estimate, test=estimate, ratio=estimate, verdict=verdict)


def a_family(**sides):
    names = {"out": "output_tokens_per_s", "ttft": "ttft_p50_s", "itl": "itl_p50_s", "good": "goodput_per_s"}
    sorted_by = {side: [] for side in ("better", "worse", "open", "blind")}
    for name, side in sides.items():
        sorted_by[side].append(
            difference(names[name], {"open": "no difference shown", "blind": "cannot tell"}.get(side, side))
        )
    return Family(**{side: tuple(found) for side, found in sorted_by.items()})


@pytest.mark.parametrize(
    ("sides", "answer"),
    [
        ({"out": "better", "ttft": "better", "itl": "worse"}, "pays"),
        ({"out": "better", "ttft": "worse", "itl": "better"}, "trade-off"),
        ({"out": "better", "good": "worse"}, "trade-off"),
        ({"out": "better", "ttft": "open"}, "pays"),
        ({"out": "worse", "ttft": "open", "itl": "better"}, "does not pay"),
        ({"out": "worse", "ttft": "better"}, "trade-off"),
        ({"out": "open", "ttft": "better", "itl": "worse"}, "trade-off"),
        ({"out": "open", "ttft": "better"}, "pays"),
        ({"out": "open", "itl": "worse"}, "does not pay"),
        ({"out": "open", "ttft": "open"}, "no difference shown"),
        ({"out": "blind", "ttft": "better"}, "cannot tell"),
        ({}, "cannot tell"),
    ],
)
def test_answers_of_a_closed_loop(sides, answer):
    assert closed_loop(a_family(**sides)) == answer


def test_latencies_alone():
    assert latency_rules(a_family(itl="better", ttft="blind")) == "pays"
    assert latency_rules(a_family(itl="better", ttft="worse")) == "trade-off"
    assert latency_rules(a_family(itl="blind", ttft="blind")) == "cannot tell"


def compared(stage="s", **found):
    names = {"out": "output_tokens_per_s", "ttft": "ttft_p50_s", "itl": "itl_p50_s"}
    return [
        Comparison(difference=difference(names[name], verdict, stage=stage), p=p)
        for name, (verdict, p) in found.items()
    ]


def test_a_family_holds_together_or_not_at_all():
    weak = compared(out=("better", 0.03), ttft=("no difference shown", 0.4), itl=("worse", 0.04))
    alone = families((SATURATED,), weak)["s"]
    assert not alone.better
    assert not alone.worse
    assert len(alone.open) == 3
    strong = compared(out=("better", 0.001), ttft=("no difference shown", 0.4), itl=("worse", 0.02))
    together = families((SATURATED,), strong)["s"]
    assert [d.quantity for d in together.better] == ["output_tokens_per_s"]
    assert [d.quantity for d in together.worse] == ["itl_p50_s"]


def test_all_stages_are_in_view_together():
    one = StageSpec(name="one", role="one_stream", concurrency=1)
    lone = compared(out=("better", 0.02))
    assert families((SATURATED,), lone)["s"].better
    more = [*lone, *compared("one", itl=("no difference shown", 0.5), ttft=("no difference shown", 0.6))]
    found = families((one, SATURATED), more)
    assert not found["s"].better
    assert len(found["one"].open) == 2
    blind = [*lone, *compared("one", itl=("cannot tell", None), ttft=("cannot tell", None))]
    assert families((one, SATURATED), blind)["s"].better  # what cannot be told is no test
    assert len(families((one, SATURATED), blind)["one"].blind) == 2


def test_words():
    study = SimpleNamespace(test="fp8", stages=(SATURATED,))
    by_name = compared(out=("better", 1e-4), ttft=("no difference shown", 0.4), itl=("worse", 1e-3))
    (found,) = headlines(study, families(study.stages, by_name), ())
    assert found.sentence == (
        "At saturation fp8 pays: output throughput 1.20× (1.14–1.26), while this got worse: ITL p50 1.20× (1.14–1.26); "
        "no difference shown in TTFT p50 1.20× (1.14–1.26)."
    )
    (weak,) = headlines(
        study, families(study.stages, compared(out=("better", 0.03), ttft=("no difference shown", 0.4))), ()
    )
    assert weak.verdict == "no difference shown"
    assert "does not hold with 2 quantities in view" in weak.sentence
    (half,) = headlines(study, families(study.stages, compared(out=("better", 1e-4), itl=("cannot tell", None))), ())
    assert half.sentence.endswith("output throughput 1.20× (1.14–1.26); nothing can be told of ITL p50.")
    assert headlines(SimpleNamespace(test=None, stages=(SATURATED,)), {}, ()) == ()

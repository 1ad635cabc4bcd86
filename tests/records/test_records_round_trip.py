"""Whatever a record holds, it is the same after a trip through JSON."""

import types
import typing
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from loadgen import records

KINDS = sorted(
    (
        kind
        for kind in vars(records).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind is not records.Record
    ),
    key=lambda kind: kind.__name__,
)


def values(annotation: Any, depth: int) -> st.SearchStrategy[Any]:
    """Values of a field's type; containers grow shorter as records nest."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([values(one, depth) for one in arguments])
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return st.lists(values(arguments[0], depth + 1), max_size=max(1, 3 - depth)).map(tuple)
    if origin is tuple:
        return st.tuples(*[values(one, depth) for one in arguments])
    if origin is dict:
        return st.dictionaries(st.text(max_size=8), values(arguments[1], depth + 1), max_size=max(1, 3 - depth))
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return made(annotation, depth + 1)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(-(2**63), 2**63 - 1),
        float: st.floats(allow_nan=False, allow_infinity=False),
        bool: st.booleans(),
        str: st.text(max_size=20),
        type(None): st.none(),
    }
    return plain[annotation]


def made(kind: type[msgspec.Struct], depth: int = 0) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    fields = [values(hints[field.name], depth) for field in msgspec.structs.fields(kind)]
    names = [field.name for field in msgspec.structs.fields(kind)]
    if kind is records.Run:
        return st.tuples(*fields).map(lambda held: records.Run(*held))
    return st.tuples(*fields).map(lambda held: kind(**dict(zip(names, held, strict=True))))


def test_every_record_is_tried():
    assert {"Request", "Plan", "Sample", "Scrape", "ServerFacts", "Manifest", "Block", "Report"} <= {
        kind.__name__ for kind in KINDS
    }


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_a_record_comes_back_from_json_as_it_went(kind, data):
    record = data.draw(made(kind))
    line = msgspec.json.encode(record)
    assert b"\n" not in line
    assert msgspec.json.decode(line, type=kind) == record


def test_fields_of_a_newer_program_are_left_out_when_read():
    line = b'{"kind":"timeout","detail":"slow","invented_later":[1,{"a":2}]}'
    assert msgspec.json.decode(line, type=records.Failure) == records.Failure(kind="timeout", detail="slow")


def test_derived_durations_of_a_sample():
    sample = records.Sample(
        index=0,
        stage="s",
        due_s=1.0,
        sent_s=1.25,
        events_s=(2.0, 2.5, 4.0),
        end_s=4.5,
        planned_prompt_tokens=8,
        planned_output_tokens=5,
        output_tokens=5,
    )
    assert (sample.lag_s, sample.ttft_s, sample.ttft_from_due_s, sample.e2e_s) == (0.25, 0.75, 1.0, 3.25)
    assert sample.tpot_s == 0.5  # 2 s for four tokens after the first
    assert records.Request(index=0, runs=(records.Run("a", 3), records.Run("b", 4)), output_tokens=1).prompt_tokens == 7

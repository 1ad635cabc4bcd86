"""What a trace is like: by hand, and on the public traces where they are."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from loadgen.errors import UserError
from loadgen.traces.arrivals import arrivals, dispersion, gap_cv, spread
from loadgen.traces.describe import Asked, Description, describe
from loadgen.traces.outlook import outlook
from loadgen.traces.resident import Speeds
from loadgen.traces.shapes import doublings, highest, per_second, width_s

HEADER = {"loadgen_trace": 1, "source": "x", "format": "x"}


def write(folder: Path, rows: list[dict[str, object]], **header: object) -> Path:
    path = folder / "x.jsonl"
    first = HEADER | {"rows_read": len(rows), "rows_kept": len(rows)} | header
    path.write_text("".join(json.dumps(line) + "\n" for line in (first, *rows)))
    return path


def described(path: Path, **asked: object) -> Description:
    return describe([path], Asked(**asked))[0]  # type: ignore[arg-type]


def test_gaps_and_bins() -> None:
    rng = np.random.default_rng(3)
    poisson = np.sort(rng.random(20_000)) * 2_000
    assert gap_cv(poisson) == pytest.approx(1.0, abs=0.03)
    assert dispersion(poisson - poisson[0], 1.0) == pytest.approx(1.0, abs=0.08)
    even = np.arange(1_000) / 10
    assert gap_cv(even) == pytest.approx(0.0, abs=1e-6)
    assert dispersion(even, 1.0) == pytest.approx(0.0, abs=1e-9)
    assert gap_cv(np.zeros(5)) is None
    assert dispersion(np.array([0.0, 5.0]), 1.0) is None


def test_a_coarse_clock_is_spread_over_its_steps_by_the_seed() -> None:
    rng = np.random.default_rng(4)
    exact = np.sort(rng.random(5_000)) * 1_500
    coarse = exact // 3 * 3
    found = arrivals(coarse - coarse[0], 3.0, seed=0)
    assert found.gap_cv is not None
    assert found.gap_cv > 2.5
    assert found.spread_gap_cv == pytest.approx(1.0, abs=0.05)
    assert found.spread_dispersion_1s == pytest.approx(1.0, abs=0.1)
    assert (spread(coarse, 3.0, 1) == spread(coarse, 3.0, 1)).all()
    assert not (spread(coarse, 3.0, 1) == spread(coarse, 3.0, 2)).all()


def test_a_burst_is_a_peak_among_empty_bins() -> None:
    found = arrivals(np.array([0.0] * 5 + [100.0] * 5), None, seed=0)
    assert (found.rate_per_s, found.peak_ratio) == (pytest.approx(0.1), pytest.approx(5.0))
    assert found.idle_ratio == pytest.approx(9 / 11)


def test_tokens_held_by_hand(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"t": 0, "in": 100, "out": 10},  # stays 1 + 1 s
        {"t": 1, "in": 100, "out": 10},
        {"t": 2, "in": 200, "out": 20},  # begins as the first ends; stays 2 + 2 s
    ]
    found = described(
        write(tmp_path, rows), speeds=Speeds(prefill_tokens_per_s=100, decode_gap_s=0.1), capacity_tokens=220
    ).resident
    assert (found.tokens.max, found.in_flight.max) == (330, 2)
    assert found.tokens.mean == pytest.approx((110 + 220 * 0 + 220 + 330 + 220 * 3) / 6)
    assert found.tokens.p50 == 220
    assert found.over_ratio == pytest.approx(1 / 6)


def test_sessions_with_blocks_and_with_prefixes(tmp_path: Path) -> None:
    blocks: list[dict[str, object]] = [
        {"t": 0, "in": 8, "out": 1, "blocks": [1, 2], "session": "a"},
        {"t": 1, "in": 8, "out": 1, "blocks": [1, 2], "session": "b"},
        {"t": 2, "in": 11, "out": 1, "blocks": [1, 2, 3], "session": "a", "think": 1.5},
    ]
    one = described(write(tmp_path, blocks, block_tokens=4, block_scope="session"))
    assert one.sessions is not None
    assert one.reuse is not None
    assert (one.sessions.count, one.sessions.turns.max, one.sessions.rows) == (2, 2, 3)
    assert one.sessions.shared_ratio == pytest.approx(8 / 27) == pytest.approx(one.reuse.shared_ratio)
    assert one.sessions.appended_tokens is not None
    assert one.sessions.think_s is not None
    assert (one.sessions.appended_tokens.p50, one.sessions.think_s.p50) == (3, 1.5)
    everywhere = described(write(tmp_path, blocks, block_tokens=4, block_scope="global"))
    assert everywhere.reuse is not None
    assert everywhere.sessions is not None
    assert everywhere.reuse.shared_ratio == pytest.approx(16 / 27)
    assert everywhere.sessions.shared_ratio == pytest.approx(8 / 27)
    prefixes: list[dict[str, object]] = [
        {"t": 0, "in": 8, "out": 1, "session": "a"},
        {"t": 2, "in": 11, "out": 1, "prefix": 9, "session": "a"},
    ]
    two = described(write(tmp_path, prefixes)).sessions
    assert two is not None
    assert two.shared_ratio == pytest.approx(9 / 19)
    assert two.found_ratio is not None
    assert two.found_ratio.mean == pytest.approx(9 / 11)


def test_capacities_are_those_asked_for_and_what_the_sentence_needs(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"t": at, "in": 8, "out": 1, "blocks": [1, 2]} for at in range(3)]
    found = described(write(tmp_path, rows, block_tokens=4), capacities_tokens=(4, 16), capacity_tokens=8)
    assert found.reuse is not None
    assert dict(found.reuse.curve) == {4: pytest.approx(8 / 24), 8: pytest.approx(16 / 24), 16: pytest.approx(16 / 24)}


def test_the_outlook_names_the_cause(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"t": at, "in": 1_000, "out": 1} for at in range(5)]
    path = write(tmp_path, rows)
    roomy, tight = (outlook(described(path, capacity_tokens=size))[0] for size in (2_002, 1_000))
    assert "2,002 tokens hold 2 times the peak, so capacity does not bind" in roomy
    assert "stays unused (cause: unused memory)" in roomy
    assert "1,000 tokens are too few" in tight
    assert "lets more requests run at once" in tight
    assert "reads 1,000 tokens of KV cache on average" in outlook(described(path))[-1]


def test_times_in_the_wrong_unit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text(
        "".join(json.dumps({"timestamp": at, "input_length": 5, "output_length": 1}) + "\n" for at in range(200))
    )
    assert described(path).arrivals.rate_per_s == pytest.approx(1_005, rel=0.01)
    with pytest.raises(UserError, match="which no service sees"):
        describe([path], time_unit="us")
    assert describe([path], time_unit="us", force_units=True)[0].rows_kept == 200


def test_a_trace_of_one_row(tmp_path: Path) -> None:
    found = described(write(tmp_path, [{"t": 0, "in": 3, "out": 1}]))
    assert (found.span_s, found.arrivals.rate_per_s, found.arrivals.gap_cv) == (0, None, None)
    assert found.resident.tokens.max == 4
    assert len(outlook(found)) == 2


def test_bins_for_pictures() -> None:
    assert doublings(np.array([1, 2, 3, 9])) == [(1, 2, 1), (2, 4, 2), (4, 8, 0), (8, 16, 1)]
    assert [width_s(span) for span in (100, 10_001, 3e5, 1e9)] == [10, 60, 600, 86_400]
    begins, rate = per_second(np.array([0.0, 1.0, 25.0]), 10.0)
    assert (begins.tolist(), rate.tolist()) == ([0, 10, 20], [0.2, 0.0, 0.1])
    begins, most = highest(np.array([0.0, 4.0, 25.0]), np.array([5, 3, 0]), 10.0)
    assert (begins.tolist(), most.tolist()) == ([0, 10, 20], [5, 3, 3])


REAL = pytest.mark.skipif("LOADGEN_TRACES" not in os.environ, reason="LOADGEN_TRACES names no folder of real traces")


def real(*parts: str) -> Path:
    return Path(os.environ["LOADGEN_TRACES"], *parts)


@REAL
def test_azure_conversation() -> None:
    found = described(real("azure-2023", "AzureLLMInferenceTrace_conv.csv"))
    assert (found.rows_kept, round(found.input_tokens.p50), round(found.output_tokens.p50)) == (19_366, 1_020, 129)
    assert found.arrivals.gap_cv == pytest.approx(1.09, abs=0.005)
    assert found.arrivals.dispersion_1s == pytest.approx(1.39, abs=0.005)
    assert found.arrivals.peak_ratio == pytest.approx(1.8, abs=0.05)
    assert found.resident.tokens.mean == pytest.approx(34_000, rel=0.01)
    assert found.resident.tokens.max == pytest.approx(75_000, rel=0.01)
    assert (found.resident.in_flight.p99, found.resident.in_flight.max) == (40, 47)
    assert found.reuse is None


@REAL
def test_mooncake_conversation() -> None:
    sizes = tuple(millions * 1_000_000 for millions in (1, 2, 4, 8, 16, 32))
    found = described(real("mooncake-fast25", "conversation_trace.jsonl"))
    assert (found.rows_kept, found.input_tokens.p50, found.output_tokens.p50) == (12_031, 6_909, 350)
    assert found.reuse is not None
    assert found.reuse.shared_ratio == pytest.approx(0.3736, abs=0.0001)
    assert found.arrivals.gap_cv == pytest.approx(3.03, abs=0.005)
    assert found.arrivals.dispersion_1s == pytest.approx(7.9, abs=0.01)
    assert found.arrivals.spread_gap_cv == pytest.approx(1.01, abs=0.02)
    assert found.arrivals.spread_dispersion_1s == pytest.approx(1.05, abs=0.03)
    assert [size for size, _ in found.reuse.curve] == list(sizes)
    percent = [100 * ratio for _, ratio in found.reuse.curve]
    assert percent == pytest.approx([5.4, 8.6, 17.8, 26.6, 33.6, 36.6], abs=0.06)
    assert found.resident.tokens.mean == pytest.approx(446_000, rel=0.002)
    assert found.resident.tokens.max == pytest.approx(1.02e6, rel=0.002)
    assert (found.resident.in_flight.p99, found.resident.in_flight.max) == (47, 59)


@REAL
def test_claude_code_sessions(tmp_path: Path) -> None:
    for path in real("kv-cache-tester-claude-code").glob("*.json"):
        (tmp_path / path.name).symlink_to(path)
    whole = described(tmp_path)
    found = whole.sessions
    assert found is not None
    assert whole.reuse is not None
    assert (round(whole.input_tokens.p50), round(whole.output_tokens.p50)) == (88_410, 309)
    assert whole.reuse.shared_ratio == pytest.approx(0.912, abs=0.001)
    assert whole.reuse.at(500_000) == pytest.approx(0.912, abs=0.001)
    assert (found.count, found.rows) == (8, 132)
    assert found.shared_ratio == pytest.approx(0.91124, abs=0.0001)
    assert found.found_ratio is not None
    assert found.appended_tokens is not None
    assert (found.found_ratio.p10, found.found_ratio.p50) == (
        pytest.approx(0.943, abs=0.001),
        pytest.approx(0.989, abs=0.001),
    )

"""A workload from /metrics: differences, restarts, histograms, prefixes, arrivals, and what is said of them."""

import json
import math
import random
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from loadgen.errors import UserError
from loadgen.records import Trace
from loadgen.traces.convert import import_trace
from loadgen.traces.engine_counters import measured
from loadgen.traces.formats import recognised
from loadgen.traces.histogram import Bucket, drawn, fitted
from loadgen.traces.metrics import arrivals, dispersion
from loadgen.traces.prefixes import block_size, reach, shared_blocks
from loadgen.traces.read import read_trace
from loadgen.traces.rows import Source
from loadgen.traces.sources import head

IDLE = "vllm:num_requests_running 0\n"
EDGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)


def histogram(stem: str, values: list[int], edges: tuple[int, ...] = EDGES, **labels: str) -> list[str]:
    told = "".join(f',{key}="{value}"' for key, value in labels.items())
    lines = [f'{stem}_bucket{{le="{edge}.0"{told}}} {sum(one <= edge for one in values)}.0' for edge in edges]
    lines.append(f'{stem}_bucket{{le="+Inf"{told}}} {len(values)}.0')
    return [*lines, f"{stem}_sum{{{told[1:]}}} {sum(values)}.0", f"{stem}_count{{{told[1:]}}} {len(values)}.0"]


def vllm(inputs: list[int], outputs: list[int], hits: int = 0, engine: str = "0", created: float = 1.7e9) -> str:
    labels = {"engine": engine, "model_name": "m"}
    lines = [
        *histogram("vllm:request_prompt_tokens", inputs, **labels),
        *histogram("vllm:request_generation_tokens", outputs, **labels),
        f'vllm:request_prompt_tokens_created{{engine="{engine}",model_name="m"}} {created}',
        f'vllm:prefix_cache_queries_total{{engine="{engine}",model_name="m"}} {sum(inputs)}',
        f'vllm:prefix_cache_hits_total{{engine="{engine}",model_name="m"}} {hits}',
        f'vllm:e2e_request_latency_seconds_sum{{engine="{engine}",model_name="m"}} {2.5 * len(inputs)}',
        f'vllm:e2e_request_latency_seconds_count{{engine="{engine}",model_name="m"}} {len(inputs)}',
        f'vllm:num_requests_running{{engine="{engine}",model_name="m"}} 3',
        f'vllm:kv_cache_usage_perc{{engine="{engine}",model_name="m"}} NaN',
    ]
    return "# HELP vllm:request_prompt_tokens Number of prefill tokens processed.\n" + "\n".join(lines) + "\n"


def known(many: int, seed: int = 1) -> tuple[list[int], list[int]]:
    rng = random.Random(seed)
    inputs = [max(1, min(9000, round(rng.lognormvariate(6.0, 1.0)))) for _ in range(many)]
    return inputs, [max(1, min(900, round(rng.lognormvariate(4.0, 0.8)))) for _ in range(many)]


def pair(folder: Path, before: str, after: str) -> list[Path]:
    paths = [folder / "before.txt", folder / "after.txt"]
    for path, text in zip(paths, (before, after), strict=True):
        path.write_text(text)
    return paths


def imported(folder: Path, paths: list[Path], **options: str) -> Trace:
    out = folder / "out"
    import_trace(paths, out, options=options)
    return read_trace(out)


def quantile(values: list[int], at: float) -> int:
    return sorted(values)[int(at * len(values))]


def test_two_scrapes_give_the_lengths_the_rate_and_the_sum(tmp_path: Path) -> None:
    old, new = known(500, seed=2), known(2000)
    before = vllm(*old, hits=1000)
    after = vllm(old[0] + new[0], old[1] + new[1], hits=1000)
    trace = imported(tmp_path, pair(tmp_path, before, after), seconds="400")
    assert (len(trace.rows), trace.rows_read) == (2000, 2000)
    assert {row.kind for row in trace.rows} == {"sampled"}
    assert trace.rows[-1].at_s == pytest.approx(400, rel=0.1)
    for true, got in zip(
        new, ([r.input_tokens for r in trace.rows], [r.output_tokens for r in trace.rows]), strict=True
    ):
        assert sum(got) == pytest.approx(sum(true), rel=0.01)
        for at in (0.1, 0.5, 0.9, 0.99):
            low = max((edge for edge in EDGES if edge < quantile(true, at)), default=0)
            high = min(edge for edge in EDGES if edge >= quantile(true, at))
            assert low <= quantile(got, at) <= high
    assert all(not row.blocks for row in trace.rows)
    assert "2,000 rows drawn from what vLLM counted of 2,000 requests in 400 s (5/s)" in trace.notes[0]
    assert "Poisson is assumed" in trace.notes[1]
    assert "5/s of 2.5 s each are 12.5 requests in flight (Little's law)" in trace.notes[2]
    assert trace.notes[2].endswith("its gauges show 3 on average")


def test_the_same_seed_draws_the_same_and_another_does_not(tmp_path: Path) -> None:
    paths = pair(tmp_path, vllm([], []), vllm(*known(200), hits=30_000))
    first, again, other = (imported(tmp_path, paths, seconds="10", seed=seed).rows for seed in ("4", "4", "5"))
    assert first == again != other
    fewer = imported(tmp_path, paths, seconds="10", rows="50").rows
    assert len(fewer) == 50
    assert fewer[-1].at_s == pytest.approx(2.5, rel=0.5)


def test_ranks_add_up_whatever_their_edges(tmp_path: Path) -> None:
    one, two = known(300, 3), known(700, 4)
    coarse = "\n".join(
        [
            *histogram("vllm:request_prompt_tokens", two[0], (1000, 4000), engine="1"),
            *histogram("vllm:request_generation_tokens", two[1], (30, 3000), engine="1"),
        ]
    )
    seen = measured(Source(paths=tuple(pair(tmp_path, vllm([], []), vllm(*one) + coarse)), options={"seconds": "100"}))
    assert seen.requests == 1000
    assert seen.inputs.total == sum(one[0]) + sum(two[0])
    assert {(1000.0, 4000.0), (1000.0, 2000.0)} <= {(bucket.low, bucket.high) for bucket in seen.inputs.buckets}
    assert seen.inputs.fitted == pytest.approx(seen.inputs.total, rel=0.001)


def test_underscores_in_place_of_the_colon_and_another_model(tmp_path: Path) -> None:
    mixed = vllm(*known(100)) + vllm(*known(50), engine="1").replace('model_name="m"', 'model_name="n"')
    paths = pair(tmp_path, "vllm_num_requests_running 0\n", mixed.replace("vllm:", "vllm_"))
    assert measured(Source(paths=tuple(paths), options={"seconds": "9"})).requests == 150
    assert measured(Source(paths=tuple(paths), options={"seconds": "9", "model": "n"})).requests == 50
    with pytest.raises(UserError, match="--option model: x: no such model_name; should be one of m, n"):
        measured(Source(paths=tuple(paths), options={"seconds": "9", "model": "x"}))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (vllm(*known(80)), vllm(*known(20)), "the server was restarted between the scrapes"),
        (vllm(*known(20)), vllm(*known(80), created=1.8e9), "the server was restarted between the scrapes"),
        (vllm(*known(20)) + vllm(*known(20), engine="1"), vllm(*known(80)), "then is gone"),
        (vllm(*known(20)), vllm(*known(20)), "no request ended in between"),
        ("vllm:num_requests_running 1\n", "vllm:num_requests_running 1\n", "no request ended in between"),
        (vllm(*known(20)), vllm(*known(80)) + "}{ 5\n", r"after.txt:\d+: '}\{ 5': should be a line of Prometheus text"),
        (IDLE, vllm(*known(9)).replace('le="50.0"', 'le="many"'), "le: 'many': should be a number of tokens"),
        (IDLE, vllm(*known(9)).replace('le="+Inf"', 'le="20000"'), 'no le="\\+Inf"'),
    ],
)
def test_scrapes_that_are_no_pair(tmp_path: Path, before: str, after: str, told: str) -> None:
    with pytest.raises(UserError, match=told) as caught:
        imported(tmp_path, pair(tmp_path, before, after), seconds="60")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "--option seconds: missing"),
        ({"seconds": "0"}, "--option seconds: '0': should be a number above 0"),
        ({"seconds": "nan"}, "--option seconds: 'nan'"),
        ({"seconds": "9", "rows": "0"}, "--option rows: '0': should be a whole number, 1 or more"),
        ({"seconds": "9", "cv": "-1"}, "--option cv: '-1': should be a number, 0 or more"),
        ({"seconds": "9", "bucket": "1"}, "--option bucket: format metrics has no such option"),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, options: dict[str, str], told: str) -> None:
    with pytest.raises(UserError, match=told):
        imported(tmp_path, pair(tmp_path, vllm([], []), vllm(*known(20))), **options)


def test_one_scrape_is_not_enough(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text(vllm(*known(20)))
    with pytest.raises(UserError, match="one scrape: counters since the server's start; should be two"):
        imported(tmp_path, [path], seconds="9")


@pytest.mark.parametrize("ratio", [0.05, 0.38, 0.9])
def test_the_prefix_share_is_what_an_unlimited_cache_finds(tmp_path: Path, ratio: float) -> None:
    new = known(2000)
    paths = pair(tmp_path, vllm([], []), vllm(*new, hits=round(ratio * sum(new[0]))))
    trace = imported(tmp_path, paths, seconds="400")
    seen: set[int] = set()
    found = 0
    for row in trace.rows:
        assert row.block_tokens is not None
        assert len(row.blocks) == -(-row.input_tokens // row.block_tokens)
        found += row.block_tokens * sum(one in seen for one in row.blocks)
        seen.update(row.blocks)
    assert found / sum(row.input_tokens for row in trace.rows) == pytest.approx(ratio, abs=0.005)
    assert any(f"the server found {100 * ratio:.3g} % of the prompt tokens" in note for note in trace.notes)


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=60), st.floats(0, 1))
def test_blocks_cover_their_prompt_and_leave_its_last_token(lengths: list[int], share: float) -> None:
    block_tokens = block_size(lengths)
    found = shared_blocks(lengths, [share * one for one in lengths], block_tokens)
    owners: dict[int, int] = {}
    for row, (length, ids) in enumerate(zip(lengths, found, strict=True)):
        assert len(ids) == -(-length // block_tokens)
        common = [place for place, one in enumerate(ids) if one == place and owners.get(one) != row]
        assert len(set(ids)) == len(ids)
        owners.update(dict.fromkeys(ids, row))
        assert len(common) <= len(ids)
    assert 0 <= reach(lengths, found, block_tokens) <= 1


def sglang(inputs: list[int], outputs: list[int], left: list[int], sources: dict[str, int]) -> str:
    lines = ["# HELP sglang:num_running_reqs r", "sglang:num_running_reqs 1"]
    if inputs:
        for stem, values in (("prompt", inputs), ("uncached_prompt", left), ("generation", outputs)):
            if values:
                lines += histogram(
                    f"sglang:{stem}_tokens_histogram", values, (100, 300, 500, 700, 1000, 4000), rank="0"
                )
        lines.append(f'sglang:prompt_tokens_total{{rank="0"}} {sum(inputs)}')
    lines += [f'sglang:cached_tokens_total{{cache_source="{key}"}} {value}' for key, value in sources.items()]
    return "\n".join(lines) + "\n"


def test_sglangs_uncached_lengths_are_kept(tmp_path: Path) -> None:
    inputs, outputs = known(3000)
    inputs = [min(one, 4000) for one in inputs]
    left = [one if one < 300 else one // 4 for one in inputs]
    trace = imported(tmp_path, pair(tmp_path, sglang([], [], [], {}), sglang(inputs, outputs, left, {})), seconds="9")
    assert trace.rows_read == 3000
    ratio = 1 - sum(left) / sum(inputs)
    (note,) = [note for note in trace.notes if "uncached lengths as in the server's histogram" in note]
    assert f"an unlimited cache finds {100 * ratio:.0f}"[:-1] in note


@pytest.mark.parametrize(
    ("sources", "ratio"),
    [({"device": 30, "host": 10, "total": 40}, 0.4), ({"device": 0, "host": 0, "total": 25}, 0.25), ({}, None)],
)
def test_sglangs_cached_tokens_are_not_counted_twice(
    tmp_path: Path, sources: dict[str, int], ratio: float | None
) -> None:
    paths = pair(tmp_path, sglang([], [], [], dict.fromkeys(sources, 0)), sglang([60, 40], [5, 5], [], sources))
    assert measured(Source(paths=tuple(paths), options={"seconds": "9"})).prefix_ratio == ratio


def answer(scrapes: list[str], step: float = 60.0, kind: str = "matrix") -> str:
    series: dict[str, dict[str, object]] = {}
    for index, text in enumerate(scrapes):
        for line in text.splitlines():
            if line.startswith("#") or line.endswith("NaN"):
                continue
            name, _, value = line.rpartition(" ")
            metric = {"__name__": name.partition("{")[0], "instance": "a:8000"}
            for label in filter(None, name.partition("{")[2].rstrip("}").split(",")):
                key, _, of = label.partition("=")
                metric[key] = of.strip('"')
            found = series.setdefault(name, {"metric": metric, "values": []})
            found["values"].append([1764500000 + step * index, value])  # type: ignore[attr-defined]
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": list(series.values())}})


def growing(counts: list[int]) -> list[str]:
    inputs, outputs = known(sum(counts))
    sums = [sum(counts[: index + 1]) for index in range(len(counts))]
    return [vllm(inputs[:many], outputs[:many]) for many in (0, *sums)]


def test_a_range_gives_its_own_instants_and_burstiness(tmp_path: Path) -> None:
    path = tmp_path / "range.json"
    rng = random.Random(3)
    path.write_text(answer(growing([rng.choice((0, 60)) for _ in range(40)])))
    trace = imported(tmp_path, [path])
    (note,) = [note for note in trace.notes if note.startswith("arrivals: gaps")]
    assert "from 40 intervals" in note
    gaps = [b.at_s - a.at_s for a, b in zip(trace.rows, trace.rows[1:], strict=False)]
    mean = sum(gaps) / len(gaps)
    cv = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) / mean
    assert float(note.split("variation of ")[1].split(",")[0]) > 3
    assert cv > 2.5
    assert trace.rows_read / (40 * 60) == pytest.approx(1 / mean, rel=0.5)


def test_a_range_with_a_restart_counts_what_came_after_it(tmp_path: Path) -> None:
    path = tmp_path / "range.json"
    path.write_text(answer([*growing([10, 20]), *growing([5])[1:], *growing([7])[1:]]))
    trace = imported(tmp_path, [path])
    assert trace.rows_read == 10 + 20 + 5 + 2
    assert trace.notes[1].startswith("1 restarts of counters within the range")
    assert "Poisson is assumed" in trace.notes[2]


def test_an_engine_that_began_within_the_range_began_at_zero(tmp_path: Path) -> None:
    path = tmp_path / "range.json"
    late = [vllm(*known(many), engine="1") for many in (4, 9)]
    early = growing([10, 10])
    path.write_text(answer([early[0], early[1] + late[0], early[2] + late[1]]))
    assert imported(tmp_path, [path]).rows_read == 29


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (answer(growing([5]), kind="vector"), "resultType: 'vector': should be matrix"),
        (answer(growing([5])).replace('"__name__"', '"was"'), r"has no name: increase\(\) and rate\(\) take it away"),
        ('{"status": "error", "error": "parse error", "resultType": 1}', "'parse error': Prometheus refused the query"),
        (answer(growing([5])).replace("[1764500000.0,", "[true, 1, "), "should be a list of"),
        (answer(growing([5]))[:-9], "not JSON"),
        (answer(growing([])), "fewer than two instants"),
    ],
)
def test_answers_that_are_no_range(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "range.json"
    path.write_text(text)
    assert recognised(head(path)).name == "metrics"
    with pytest.raises(UserError, match=told) as caught:
        imported(tmp_path, [path])
    assert len(str(caught.value).splitlines()) == 1


def test_a_range_takes_no_seconds(tmp_path: Path) -> None:
    path = tmp_path / "range.json"
    path.write_text(answer(growing([5])))
    with pytest.raises(UserError, match="--option seconds: a PromQL range has its own instants"):
        imported(tmp_path, [path], seconds="9")


def test_what_is_longer_than_the_last_edge_is_said_and_bounded(tmp_path: Path) -> None:
    edges = (100, 1000)
    inputs, outputs = [50] * 90 + [3000] * 10, [20] * 100
    after = "\n".join(
        [
            *histogram("vllm:request_prompt_tokens", inputs, edges),
            *histogram("vllm:request_generation_tokens", outputs, edges),
        ]
    )
    trace = imported(tmp_path, pair(tmp_path, IDLE, after), seconds="9")
    assert sum(row.input_tokens for row in trace.rows) == pytest.approx(sum(inputs), rel=0.03)
    assert any("10 % of the prompts are longer than the last bucket's edge" in note for note in trace.notes)


def test_a_sum_that_no_lengths_in_the_buckets_have_is_told(tmp_path: Path) -> None:
    after = vllm([60] * 50, [5] * 50).replace(" 3000.0", " 900000.0")
    trace = imported(tmp_path, pair(tmp_path, vllm([], []), after), seconds="9")
    assert any("buckets and sum do not agree" in note for note in trace.notes)
    without = "\n".join(line for line in vllm([60] * 50, [5] * 50).splitlines() if "_tokens_sum" not in line)
    trace = imported(tmp_path, pair(tmp_path, IDLE, without), seconds="9")
    assert any("no sum of prompts' lengths" in note for note in trace.notes)


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0.01, 0.99)), min_size=1, max_size=8), st.integers(1, 300))
def test_drawn_lengths_stay_in_their_buckets_in_their_shares(parts: list[tuple[int, float]], rows: int) -> None:
    edges = [0, *EDGES]
    buckets = [Bucket(edges[i], edges[i + 1], count) for i, (count, _) in enumerate(parts)]
    total = sum(
        bucket.count * (bucket.low + 1 + place * (bucket.high - bucket.low - 1))
        for bucket, (_, place) in zip(buckets, parts, strict=True)
    )
    lengths = fitted(buckets, total)
    found = drawn(lengths, rows, random.Random(1))
    assert len(found) == rows
    for bucket in buckets:
        share = bucket.count / lengths.count * rows
        assert abs(sum(bucket.low < one <= bucket.high for one in found) - share) < 1


def test_dispersion_is_one_for_poisson_and_no_day_makes_it_burst() -> None:
    rng = random.Random(5)
    at = list(arrivals(20_000, 1.0, 1.0, rng))
    poisson = [0.0] * 400
    for instant in at:
        if instant < 20_000:
            poisson[int(instant // 50)] += 1
    assert dispersion(tuple(poisson)) == pytest.approx(1, abs=0.2)
    day = tuple(1000 + 900 * math.sin(index / 200) for index in range(1000))
    assert dispersion(day) < 0.1
    assert list(arrivals(3, 2.0, 0.0, rng)) == [0.0, 2.0, 4.0]


def test_scrapes_of_old_names_and_with_an_external_cache(tmp_path: Path) -> None:
    new = known(50)
    tokens = sum(new[0])
    external = f"vllm:external_prefix_cache_hits_total {tokens // 10}\n"
    paths = tuple(pair(tmp_path, vllm([], []), vllm(*new, hits=tokens // 5) + external))
    assert measured(Source(paths=paths, options={"seconds": "9"})).prefix_ratio == pytest.approx(0.3, abs=0.01)
    old = vllm(*new, hits=tokens // 5).replace("vllm:prefix_cache", "vllm:gpu_prefix_cache")
    paths = tuple(pair(tmp_path, "vllm:num_requests_running 0\n", old))
    assert measured(Source(paths=paths, options={"seconds": "9"})).prefix_ratio == pytest.approx(0.2, abs=0.01)

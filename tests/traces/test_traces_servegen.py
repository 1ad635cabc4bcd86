"""ServeGen's clients: what is drawn has the rates, the gaps and the lengths that were measured."""

import json
import math
import random
import statistics
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from fakes.trace_files import REAL, both_ways, real, recognised_by, refused, write

from loadgen.errors import UserError
from loadgen.traces.read import read_trace
from loadgen.traces.servegen import drawn, instants
from loadgen.traces.servegen_files import Window, frequencies

ROOT = Path(__file__).parents[2]
TRACE = "0,0.155,1.07,Gamma,0.86,7.46\n600,0,0,,0,0\n1200,0.5,0.9,Weibull,1.1,2.0\n1800,0.0025,0,,0,0\n"
DATASET = {
    "0": {"input_tokens": "{81: 0.25, 82: 0.75}", "output_tokens": "{5.0: 1}", "reason_ratio": "{0.0: 1.0}"},
    "1200": {"input_tokens": "{1000: 3}", "output_tokens": "{7: 0.5, 9: 0.5}"},
}


def client(folder: Path, name: str = "chunk-5", trace: str = TRACE, dataset: object = DATASET) -> Path:
    write(folder / f"{name}-dataset.json", dataset if isinstance(dataset, str) else json.dumps(dataset))
    return write(folder / f"{name}-trace.csv", trace)


def test_each_windows_rate_and_lengths(tmp_path: Path) -> None:
    trace = both_ways(client(tmp_path))
    early = [row for row in trace.rows if row.kind == "chunk-5" and row.input_tokens < 1000]
    late = [row for row in trace.rows if row.input_tokens == 1000]
    assert len(early) == 93
    assert len(late) in (301, 302)  # 0.5/s, and 1.5 requests of the last window
    assert {row.output_tokens for row in early} == {5}
    assert {row.output_tokens for row in late} == {7, 9}
    assert 0.6 < sum(row.input_tokens == 82 for row in early) / 93 < 0.9
    assert early[-1].at_s < 600 < 1200 - early[-1].at_s < late[0].at_s
    assert trace.notes == (
        "requests are drawn, not recorded: 1 clients' measured rates and lengths, seed 0; "
        "input and output lengths are independent",
    )


@pytest.mark.parametrize(
    ("pattern", "shape", "cv"),
    [("Gamma", 0.25, 2.0), ("Gamma", 4.0, 0.5), ("Weibull", 0.5, math.sqrt(5)), ("", 1.0, 1.0)],
)
def test_gaps_have_the_measured_shape(pattern: str, shape: float, cv: float) -> None:
    """Coefficients of variation: 1/sqrt(k) of Gamma; sqrt(Γ(1+2/k)/Γ(1+1/k)² - 1) of Weibull: sqrt(5) at 1/2."""
    window = Window(start_s=100.0, width_s=600.0, rate_per_s=100.0, pattern=pattern, shape=shape)
    at = list(instants(window, random.Random(1)))
    assert len(at) == 60_000
    assert at[0] >= 100
    assert at[-1] < 700
    gaps = [later - earlier for earlier, later in pairwise(at)]
    assert statistics.stdev(gaps) / statistics.mean(gaps) == pytest.approx(cv, rel=0.05)


def test_a_fraction_of_a_request_comes_by_chance() -> None:
    window = Window(start_s=0.0, width_s=10.0, rate_per_s=0.025, pattern="Gamma", shape=0.02)
    counts = [len(list(instants(window, random.Random(seed)))) for seed in range(2000)]
    assert set(counts) == {0, 1}
    assert statistics.mean(counts) == pytest.approx(0.25, abs=0.03)


def test_a_product_of_floats_that_misses_a_whole_number_loses_no_request() -> None:
    window = Window(start_s=0.0, width_s=600.0, rate_per_s=55 / 600, pattern="", shape=1.0)
    assert window.rate_per_s * window.width_s < 55
    assert {len(list(instants(window, random.Random(seed)))) for seed in range(50)} == {55}


def test_lengths_are_drawn_as_often_as_they_occurred() -> None:
    lengths = frequencies("{10: 1, 20: 0, 30.2: 3}", Path("f"), "k")
    assert lengths.tokens == (10, 30)
    draws = random.Random(2)
    assert statistics.mean(drawn(lengths, draws) == 30 for _ in range(4000)) == pytest.approx(0.75, abs=0.03)


def test_a_folder_of_clients_is_one_mix_in_order_of_time(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    client(folder)
    client(folder, "chunk-7")
    write(folder / "NOTICE", "where they come from")
    assert recognised_by(folder) == ["servegen"]
    trace = read_trace(folder)
    assert {row.kind for row in trace.rows} == {"chunk-5", "chunk-7"}
    assert not any("out of order" in note for note in trace.notes)
    alone = [row.at_s for row in read_trace(folder / "chunk-5-trace.csv").rows]
    mixed = [row.at_s for row in trace.rows if row.kind == "chunk-5"]
    assert [at - mixed[0] for at in mixed] == pytest.approx(alone, abs=1e-6)  # a client's draws are its own
    assert [row.at_s for row in trace.rows if row.kind == "chunk-7"] != mixed


def test_either_file_of_a_client_names_it(tmp_path: Path) -> None:
    trace = client(tmp_path)
    dataset = trace.with_name("chunk-5-dataset.json")
    assert recognised_by(trace) == recognised_by(dataset) == ["servegen"]
    assert read_trace(dataset).rows == read_trace(trace).rows


def test_clients_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    client(tmp_path / "a")
    client(tmp_path / "b")
    assert {row.kind for row in read_trace(tmp_path, "servegen").rows} == {"a/chunk-5", "b/chunk-5"}


def test_a_part_is_cut_out_of_the_same_draws(tmp_path: Path) -> None:
    path = client(tmp_path)
    whole, part = read_trace(path), read_trace(path, options={"window": "1300:1500"})
    inside = [row.at_s for row in whole.rows if 1300 <= row.at_s + first_s(path) < 1500]
    assert len(part.rows) == len(inside) > 50
    assert [row.at_s for row in part.rows] == pytest.approx([at - inside[0] for at in inside], abs=1e-6)
    assert "rates and lengths from 1300 s to 1500 s, seed 0" in part.notes[0]


def first_s(path: Path) -> float:
    """When the whole trace's first row comes: its instants count from there."""
    window = Window(0.0, 600.0, 0.155, "Gamma", 0.86)
    return next(iter(instants(window, random.Random("0:chunk-5:0.0"))))


def test_a_seed_gives_the_same_in_every_process_and_another_seed_another(tmp_path: Path) -> None:
    path = client(tmp_path)
    code = "import sys; from pathlib import Path; from loadgen.traces.read import read_trace; "
    code += "print(sum(row.at_s * row.input_tokens for row in read_trace(Path(sys.argv[1])).rows))"
    told = {
        subprocess.run(
            [sys.executable, "-c", code, str(path)],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1
    assert read_trace(path).rows != read_trace(path, options={"seed": "1"}).rows


def test_a_window_without_lengths_is_dropped_and_counted(tmp_path: Path) -> None:
    path = client(tmp_path, dataset={"600": {"input_tokens": "{}", "output_tokens": "{}"}, "1200": DATASET["1200"]})
    trace = both_ways(path)
    assert trace.dropped == {"no lengths for that window": 93}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{81: 1", "'{81: 1': should be a text that holds a Python dict"),
        ("[81]", "'[81]': should be a text that holds a Python dict"),
        ("__import__('os').getpid()", "\"__import__('os').getpid()\": should be a text that holds a Python dict"),
        ("{" * 9000, "'{{{{"),
        ("9" * 9000, "'9999"),
        ("{81: -1}", "{81: -1}: should be tokens and how often"),
        ("{81: 1e999}", "{81: inf}: should be tokens and how often"),
        ("{'81': 1}", "{'81': 1}: should be tokens"),
        ("{True: 1}", "{True: 1}: should be tokens"),
        ("{10**9: 1}", "'{10**9: 1}': should be a text"),
        ("{1000000000: 1}", "{1000000000: 1}: should be tokens"),
        (None, "None: should be a text that holds"),
        ({"81": 1}, "{'81': 1}: should be a text that holds"),
    ],
)
def test_lengths_that_are_no_dict_of_numbers(tmp_path: Path, text: object, told: str) -> None:
    path = client(tmp_path, dataset={"0": {"input_tokens": text, "output_tokens": "{1: 1}"}})
    with pytest.raises(UserError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{tmp_path / 'chunk-5-dataset.json'}: 0.input_tokens: {told}")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("0.155", "-1", "FILE:1: rate: '-1': should be requests per second, 0 to 1e+06"),
        ("0.155", "1e9", "FILE:1: rate: '1e9': should be requests"),
        ("Gamma", "Zipf", "FILE:1: pattern: 'Zipf': should be Gamma, Weibull or empty"),
        ("0.86", "0", "FILE:1: shape: '0': should be 0.02 to 1000"),
        ("600,0,0,,0,0", "600,0,0,,0", "FILE:2: 5 columns: should be 6"),
        ("600,0", "0,0", "FILE:2: window_start: 0.0: should be above 0, the row before"),
        ("1200,", "noon,", "FILE:3: window_start: 'noon': should be seconds"),
    ],
)
def test_a_malformed_window(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in TRACE
    assert refused(client(tmp_path, trace=TRACE.replace(old, new, 1)), format="servegen").startswith(told)


def test_clients_that_are_not_whole(tmp_path: Path) -> None:
    path = client(tmp_path)
    dataset = path.with_name("chunk-5-dataset.json")
    dataset.write_text('{"noon": {}}')
    with pytest.raises(UserError, match=r"start of a window: could not convert .*should be seconds"):
        read_trace(path)
    dataset.write_text("[1]")
    with pytest.raises(UserError, match="should be a JSON object of windows"):
        read_trace(path)
    dataset.unlink()
    assert refused(path) == "FILE: no dataset beside it; should be chunk-5-dataset.json, the client's lengths"
    other = write(tmp_path / "x.csv", TRACE)
    assert refused(other) == "FILE: should be called NAME-trace.csv, beside NAME-dataset.json"
    empty = write(tmp_path / "e" / "NOTICE", "nothing").parent
    assert refused(empty, format="servegen").startswith("FILE: no file ends with -trace.csv")


@pytest.mark.parametrize("window", ["5", "9:5", "a:b", "-1:5", "5:5", ":"])
def test_options_that_make_no_sense(tmp_path: Path, window: str) -> None:
    told = refused(client(tmp_path), {"window": window})
    assert told == f"--option window: {window!r}: should be from:to in seconds, such as 0:3600"


@REAL
def test_the_published_clients() -> None:
    trace = read_trace(real("servegen-sample"))
    by_kind = {kind: [row for row in trace.rows if row.kind == kind] for kind in {row.kind for row in trace.rows}}
    assert {kind: len(rows) for kind, rows in by_kind.items()} == {
        "deepseek-r1-chunk-5": 16_558,  # the sum over its windows of rate x 600 s
        "m-large-chunk-106": 7_571,
    }
    short = by_kind["m-large-chunk-106"]
    assert {row.input_tokens for row in short} <= set(range(81, 103))
    assert short[-1].at_s - short[0].at_s < 1200

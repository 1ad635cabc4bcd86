"""A trace as a page: what was measured is in its figures, and nothing in it acts."""

import json
import re
from pathlib import Path

from loadgen.report.trace_page import render
from loadgen.traces.describe import Asked, describe
from loadgen.traces.outlook import outlook


def page(path: Path, **asked: object) -> str:
    of, columns = describe([path], Asked(**asked))  # type: ignore[arg-type]
    return render(of, columns, outlook(of))


def figures(source: str) -> dict[str, dict[str, object]]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', source, re.S)
    assert found is not None
    return json.loads(found[1])  # type: ignore[no-any-return]


def test_the_figures_hold_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text(
        '{"timestamp": 0, "input_length": 600, "output_length": 9, "hash_ids": [0, 1]}\n'
        '{"timestamp": 15000, "input_length": 600, "output_length": 9, "hash_ids": [0, 2]}\n'
    )
    source = page(path, capacity_tokens=1024, capacities_tokens=(512,))
    drawn = figures(source)
    lengths, outputs, rate, held, curve = (drawn[f"chart-{number}"]["data"][0] for number in range(1, 6))  # type: ignore[index]
    assert (lengths["x"], lengths["y"]) == (["512"], [2])
    assert outputs["x"] == ["8"]
    assert (rate["x"], rate["y"]) == ([0, 10], [0.1, 0.1])
    assert max(held["y"]) == 609
    assert curve["x"] == [512, 1024, 2048]
    assert json.loads(re.search(r'id="trace-data">(.*?)</script>', source, re.S)[1])["rows_kept"] == 2  # type: ignore[index]


def test_a_hostile_name_is_text(tmp_path: Path) -> None:
    path = tmp_path / "<script>alert(1)<b>.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,5,6\n")
    source = page(path)
    assert "<script>alert(1)" not in source
    assert "&lt;script&gt;alert(1)&lt;b&gt;.csv: 1 requests" in source

from pathlib import Path

import msgspec
import pytest
import report_golden
from report_example import comparison
from report_variants import VARIANTS

from loadgen.records import Report
from loadgen.report import as_json

SCHEMA = Path(__file__).parents[2] / "docs" / "report.schema.json"


@pytest.mark.parametrize("name", VARIANTS)
def test_json_reads_back_equal(name: str) -> None:
    report = VARIANTS[name]()
    assert msgspec.json.decode(as_json.render(report), type=Report) == report


def test_json_is_as_agreed() -> None:
    short = msgspec.structs.replace(comparison(), curves=comparison().curves[-1:])
    report_golden.check("report_comparison.json", as_json.render(short).decode())


def test_the_documented_schema_is_current() -> None:
    assert as_json.schema() == SCHEMA.read_bytes(), (
        "write it again: python -c 'import sys; from loadgen.report import as_json; "
        "sys.stdout.buffer.write(as_json.schema())' > docs/report.schema.json"
    )

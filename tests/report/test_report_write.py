import errno
import os
from pathlib import Path

import msgspec
import pytest
from report_example import comparison

from loadgen.errors import ExperimentError
from loadgen.records import Report
from loadgen.report import write


def test_four_files_and_nothing_else(tmp_path: Path) -> None:
    written = write.write_all(comparison(), tmp_path / "new" / "folder")
    assert sorted(path.name for path in written) == ["report.html", "report.json", "report.prom", "report.txt"]
    assert sorted((tmp_path / "new" / "folder").iterdir()) == sorted(written)
    assert msgspec.json.decode((tmp_path / "new/folder/report.json").read_bytes(), type=Report) == comparison()
    assert "\x1b" not in (tmp_path / "new/folder/report.txt").read_text("utf-8")


def test_a_full_disk_is_one_clear_line_and_keeps_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report.json").write_text("before")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ExperimentError, match=r"report\.json: cannot write: No space left on device; free") as caught:
        write.write_all(comparison(), tmp_path)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
    assert (tmp_path / "report.json").read_text() == "before"


def test_a_folder_that_is_a_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(ExperimentError, match=r"cannot write"):
        write.write_all(comparison(), tmp_path / "taken")

"""YAML files that nobody should have to wait for, and what no file may do."""

import math
from pathlib import Path

import pytest

from loadgen import document
from loadgen.errors import UserError

PATH = Path("f.yaml")
LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGED = "a: &a {x: 1}\n" + "".join(
    f"{new}: &{new} {{<<: [{', '.join([f'*{old}'] * 9)}]}}\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


def refused(text: str, rules: document.Rules = document.NATIVE) -> str:
    with pytest.raises(UserError) as caught:
        document.read(text, PATH, rules)
    (complaint,) = caught.value.complaints
    return complaint


@pytest.mark.parametrize("bomb", [LAUGHS, MERGED])
def test_aliases_that_stand_for_billions_are_refused(bomb: str) -> None:
    assert "more than 20,000 values, its aliases written out" in refused(bomb)


def test_aliases_of_a_few_lines_are_read() -> None:
    read = document.read("a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: [*a, *a]\n", PATH)
    assert read.data == {"a": {"x": 1}, "b": {"x": 1, "y": 2}, "c": [{"x": 1}, {"x": 1}]}


def test_an_alias_within_itself_is_refused() -> None:
    assert refused("a: &a [1, *a]\n").startswith("f.yaml:1: not YAML: an alias within what it stands for")


@pytest.mark.parametrize(
    "value",
    [
        "!!timestamp soon",
        "!!timestamp 2001-99-99",
        "!!float ''",
        "!!int ''",
        "!!int _",
        "!!int 1:a",
        "!!bool x",
        "!!map x",
        "!!seq x",
        "!!str [x]",
        "!!merge x",
        "!!binary aGVsbG8=",
        "!!set {a}",
        "!!omap [a: 1]",
        "!!python/name:os.system",
        "0x" + "f" * 5000,
        "0b" + "1" * 5000,
        "9" * 400,
        "1" + ":59" * 2500,
        "1" + ":59" * 300 + ".5",
        "\x00",
        '"a\\0b"',
        '"\\ud800"',
        '{"\\ud800": 1}',
        "[" * 500,
        "{a: " * 500,
        "- " * 500,
    ],
)
def test_a_value_that_is_none_is_refused_in_one_line(value: str) -> None:
    complaint = refused(f"a: {value}\n")
    assert complaint.startswith("f.yaml")
    assert len(complaint) < 200


@pytest.mark.parametrize(
    "text", ['"\\UFFFFFFFF"', '"\\U00110000"', "%YAML 1." + "9" * 5000 + "\n--- a", "%YAML 2.0\n--- a"]
)
def test_what_the_scanner_itself_stumbles_over_is_one_complaint(text: str) -> None:
    assert refused(text).startswith("f.yaml")


def test_native_rules_are_those_of_engines_and_dates_stay_text() -> None:
    text = "a: yes\nb: 010\nc: 1e3\nd: 2001-12-14\ne: =\nf: 2001-99-99\n"
    native = {"a": True, "b": 8, "c": "1e3", "d": "2001-12-14", "e": "=", "f": "2001-99-99"}
    assert document.read(text, PATH, document.NATIVE).data == native
    assert document.read(text, PATH).data == {**native, "a": "yes", "b": 10, "c": 1000.0}


def test_numbers_that_are_none_are_left_to_the_reader() -> None:
    data = document.read("a: .inf\nb: .nan\nc: " + "9" * 299, PATH).data
    assert (data["a"], math.isnan(data["b"]), data["c"]) == (math.inf, True, 10**299 - 1)


def test_a_file_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(b"a: " + b"x" * document.MOST_BYTES)
    with pytest.raises(UserError, match="too long; should be a file of at most 256 KiB"):
        document.load(path)
    with pytest.raises(UserError, match="/dev/zero: too long"):
        document.load(Path("/dev/zero"))


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(b"a: \xff\n")
    with pytest.raises(UserError, match="cannot be read: not UTF-8 text"):
        document.load(path)

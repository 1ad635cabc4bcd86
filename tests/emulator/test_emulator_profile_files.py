"""Profiles that no machine can have, told in a line each."""

from pathlib import Path

import pytest

from loadgen.emulator import profile
from loadgen.errors import UserError

GOOD = """\
name: p
source: planted
model: {name: m, layers: 2, kv_heads: 1, head_dim: 64, weight_bytes: 0, max_model_len: 128}
memory: {kv_cache_bytes: 1000000}
step: {fixed_s: 1.0e-3, weight_bandwidth_bytes_per_s: 1.0e10, attention_bandwidth_bytes_per_s: 1.0e10}
formats: {bfloat16: {backend: A}}
"""


def refused(path: Path, text: str) -> tuple[str, ...]:
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        profile.load(str(path))
    return tuple(line.removeprefix(str(path)) for line in caught.value.complaints)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "p.yaml"


def test_a_good_one_is_read(file: Path) -> None:
    file.write_text(GOOD)
    assert profile.load(str(file)).model.layers == 2


@pytest.mark.parametrize("text", ["!!float ''", "[" * 500, "\x00", "!!timestamp x"])
def test_what_yaml_cannot_be_is_one_complaint(file: Path, text: str) -> None:
    assert len(refused(file, GOOD.replace("name: p", f"name: {text}"))) == 1


def test_a_list_in_the_place_of_a_name_is_cut(file: Path) -> None:
    (line,) = refused(file, GOOD.replace("name: p", "name: [" + "a, " * 500 + "a]"))
    assert line == ": name: ['a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a',: should be a valid string"


def test_a_long_value_is_cut(file: Path) -> None:
    (line,) = refused(file, GOOD.replace("layers: 2", "layers: " + "a" * 500))
    assert len(line) < 200


def test_a_repeated_key_is_refused(file: Path) -> None:
    (line,) = refused(file, GOOD + "name: q\n")
    assert line.startswith(":7: not YAML: key 'name' given twice")

import re
from pathlib import Path

from loadgen.emulator import reference
from loadgen.emulator.profile import SECTIONS, profiles_folder

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / reference.PAGE).read_text(encoding="utf-8")


def test_the_tables_of_the_page_are_current() -> None:
    assert reference.tables() in PAGE, "run python -m loadgen.emulator.reference"


def test_writing_changes_nothing_that_is_current(tmp_path: Path) -> None:
    (tmp_path / reference.PAGE).parent.mkdir()
    (tmp_path / reference.PAGE).write_text(PAGE, encoding="utf-8")
    reference.write(tmp_path)
    assert (tmp_path / reference.PAGE).read_text(encoding="utf-8") == PAGE


def test_every_key_is_described() -> None:
    silent = [
        (place, name)
        for place, keys in SECTIONS.items()
        for name, field in keys.model_fields.items()
        if not field.description
    ]
    assert silent == []


def test_the_page_lists_every_profile_that_ships() -> None:
    shipped = {path.stem for path in profiles_folder().glob("*.yaml")}
    assert shipped <= set(re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE))


def test_the_example_of_the_page_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    exec(example, names)
    assert isinstance(names["now_s"], float)
    assert names["now_s"] > 0.5

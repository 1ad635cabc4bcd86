"""What a scenario or a profile may not hold, and that nothing else is complained about."""

from pathlib import Path

import pytest

from loadgen.emulator.profile import NoiseKeys, StepKeys
from loadgen.errors import UserError
from loadgen.workload.scenario import load

HEAD = "name: x\nworkload: {max_input_tokens: 400}\n"
CELLS = "grid: {contexts: %s, concurrency: %s, output_tokens: 4}\n"
MANY = list(range(1, 52))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (CELLS % ("[16, 1.5]", "[1]"), ["grid.contexts[1]: 1.5: should be a whole number"]),
        (CELLS % ("[16]", "[1]"), ["grid.contexts: should hold two values at least"]),
        (CELLS % ("[16, 32]", "[]"), ["grid.concurrency: should hold one value at least"]),
        (CELLS % (MANY, "[1]"), ["grid.contexts: should hold 50 values at most"]),
        (
            "stages: [{name: a, rate: 1e-308, duration: 10s, input_tokens: 5, output_tokens: 5}]\n",
            ["stages[0].rate: 1e-308: should be at least 1e-06"],
        ),
    ],
)
def test_one_line_per_mistake(tmp_path: Path, text: str, told: list[str]) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(HEAD + text)
    with pytest.raises(UserError) as error:
        load(path)
    assert [line.split(": ", 1)[1] for line in str(error.value).splitlines()] == told


@pytest.mark.parametrize("key", ["step", "start", "wander"])
def test_a_spread_beyond_any_machine_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="less than or equal to 3"):
        NoiseKeys.model_validate({key: 100})


def test_a_step_that_never_ends_is_refused() -> None:
    with pytest.raises(ValueError, match="less than or equal to 3600"):
        StepKeys(fixed_s=1e308, weight_bandwidth_bytes_per_s=1, attention_bandwidth_bytes_per_s=1)

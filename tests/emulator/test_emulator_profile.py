from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from loadgen.emulator import profile
from loadgen.emulator.arm import emulated
from loadgen.emulator.cost import break_even_tokens
from loadgen.errors import UserError

FOLDER = Path(__file__).parents[2] / "deploy" / "emulator" / "profiles"
SHIPPED = sorted(path.stem for path in FOLDER.glob("*.yaml"))

GOOD: dict[str, Any] = {
    "name": "small",
    "source": "planted",
    "model": {"name": "m", "layers": 2, "kv_heads": 1, "head_dim": 8, "weight_bytes": 100, "max_model_len": 64},
    "memory": {"kv_cache_bytes": 64_000},
    "step": {"fixed_s": 0.001, "weight_bandwidth_bytes_per_s": 1e6, "attention_bandwidth_bytes_per_s": 1e6},
    "formats": {"bfloat16": {"backend": "A"}, "fp8": {"backend": "B", "other_backends": {"C": {"sequence_s": 1}}}},
}


def changed(place: str, value: Any) -> dict[str, Any]:
    """GOOD with the key at `place` (dotted) set, or taken out where the value is None."""
    content = deepcopy(GOOD)
    *parents, key = place.split(".")
    section = content
    for parent in parents:
        section = section.setdefault(parent, {})
    if value is None:
        del section[key]
    else:
        section[key] = value
    return content


def complaints(tmp_path: Path, content: Any) -> tuple[str, ...]:
    path = tmp_path / "p.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
    with pytest.raises(UserError) as caught:
        profile.load(str(path))
    return tuple(line.removeprefix(f"{path}: ") for line in caught.value.complaints)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_profile_gives_an_engine_in_each_of_its_formats(name: str) -> None:
    loaded = profile.load(name)
    assert loaded.name == name
    assert loaded.description
    assert any(word in loaded.source.lower() for word in ("measured", "planted", "estimate"))
    for kv_dtype, keys in loaded.formats.items():
        for backend in (keys.backend, *keys.other_backends):
            arm = emulated(loaded, {"kv-cache-dtype": kv_dtype, "attention-backend": backend})
            assert arm.format.backend == backend
            assert arm.capacity_tokens > arm.max_model_len
            assert arm.model().step(0.0).took_s > 0


def costs(name: str) -> list[Any]:
    return [emulated(profile.load(name), {"kv-cache-dtype": kv_dtype}).cost for kv_dtype in ("bfloat16", "fp8")]


@pytest.mark.parametrize(
    ("name", "intercepts_ms", "slopes_ms", "break_even"),
    [
        ("h100-llama3.1-8b", (6.44, 6.58), (4.37e-5, 2.37e-5), 7010),
        ("b200-llama3.1-8b", (3.93, 3.96), (1.80e-5, 9.72e-6), 3623),
    ],
)
def test_published_figures_are_planted(
    name: str, intercepts_ms: tuple[float, float], slopes_ms: tuple[float, float], break_even: float
) -> None:
    base, test = costs(name)
    assert (base.intercept_s * 1e3, test.intercept_s * 1e3) == pytest.approx(intercepts_ms, abs=5e-4)
    assert (base.slope_s_per_token * 1e3, test.slope_s_per_token * 1e3) == pytest.approx(slopes_ms, rel=1e-4)
    assert break_even_tokens(base, test) == pytest.approx(break_even, abs=1)


def test_the_unfused_profile_is_slower_at_every_context() -> None:
    base, test = costs("h100-unfused")
    assert test.intercept_s > base.intercept_s
    assert test.slope_s_per_token == pytest.approx(2.5 * base.slope_s_per_token, rel=1e-4)
    assert break_even_tokens(base, test) is None


def test_the_profile_with_few_slots_cannot_fill_even_the_baselines_cache() -> None:
    arm = emulated(profile.load("h100-few-slots"), {"kv-cache-dtype": "bfloat16"})
    assert arm.limits.max_num_seqs * arm.max_model_len < 0.6 * arm.capacity_tokens


def test_on_ampere_the_format_changes_the_kernel_family_and_a_control_can_be_asked_for() -> None:
    formats = profile.load("a100-llama3.1-8b").formats
    assert (formats["bfloat16"].backend, formats["fp8"].backend) == ("FLASH_ATTN", "FLASHINFER")
    assert "FLASHINFER" in formats["bfloat16"].other_backends


def test_a_good_profile_loads_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(GOOD), encoding="utf-8")
    assert profile.load(str(path)).model.layers == 2


@pytest.mark.parametrize(
    ("place", "value", "complaint"),
    [
        ("source", None, "source: is required"),
        ("model.layers", None, "model.layers: is required"),
        ("model.layers", 0, "model.layers: 0: should be greater than or equal to 1"),
        ("model.weight_bytes", -1, "model.weight_bytes: -1: should be greater than or equal to 0"),
        ("step.fixed_s", "fast", "step.fixed_s: 'fast': should be a valid number, unable to parse string as a number"),
        ("step.fixed_s", float("inf"), "step.fixed_s: inf: should be a finite number"),
        ("step.speed", 3, "step.speed: no such key; known: fixed_s, weight_bandwidth_bytes_per_s"),
        ("spped", 3, "spped: no such key; known: name, description, source"),
        ("formats.fp8.bckend", "A", "formats.fp8.bckend: no such key; known: fused, read_penalty"),
        (
            "formats.fp8.other_backends.C.backend",
            "A",
            "formats.fp8.other_backends.C.backend: no such key; known: fused",
        ),
        ("formats.fp8.read_penalty", 0.5, "formats.fp8.read_penalty: 0.5: should be greater than or equal to 1"),
        ("formats.fp8.fused", False, "formats.fp8: read_penalty: 1: should be above 1 where fused is false"),
        ("formats.fp8.skip_layers", 3, "formats.fp8.skip_layers: should be at most model.layers (2)"),
        ("formats.int3", {"backend": "A"}, "formats: int3: should be among bfloat16, float16, fp8"),
        ("formats", {}, "formats: should have at least 1 item"),
        ("formats", [1], "formats: [1]: should be a mapping"),
        ("memory.total_bytes", 5, "memory: should have kv_cache_bytes or total_bytes, one of the two"),
        ("memory", {}, "memory: should have kv_cache_bytes or total_bytes, one of the two"),
        ("memory.utilization", 1.5, "memory.utilization: 1.5: should be less than or equal to 1"),
        ("scheduler.max_num_seqs", 2.5, "scheduler.max_num_seqs: 2.5: should be a valid integer"),
        ("noise.hiccup_s", 0, "noise.hiccup_s: 0: should be greater than 0"),
    ],
)
def test_what_is_wrong_is_said_with_key_value_and_what_is_right(
    tmp_path: Path, place: str, value: Any, complaint: str
) -> None:
    (said,) = complaints(tmp_path, changed(place, value))
    assert said.startswith(complaint)


def test_every_complaint_has_its_line(tmp_path: Path) -> None:
    content = changed("step.speed", 3)
    content["model"]["layers"] = 0
    assert len(complaints(tmp_path, content)) == 2


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "None: should be a mapping"),
        ("- 1", "[1]: should be a mapping"),
        ("a: [1", "not YAML: while parsing a flow sequence"),
        ("a: \x00", "not YAML: "),
    ],
)
def test_what_is_no_mapping_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    assert complaint in complaints(tmp_path, text)[0]


def test_a_profile_that_is_not_there_is_answered_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"profile h200: no such profile; known: a100-llama3.1-8b, .*h100-unfused"):
        profile.load("h200")
    with pytest.raises(UserError, match="no such file"):
        profile.load(str(tmp_path / "absent.yaml"))
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9")
    with pytest.raises(UserError, match="cannot be read"):
        profile.load(str(tmp_path / "latin.yaml"))


def test_bytes_of_a_token_follow_the_format_and_the_layers_left_out() -> None:
    content = changed("formats.int8_per_token_head", {"backend": "T", "skip_layers": 1})
    loaded = profile.Profile.model_validate(content)
    assert profile.full_bytes(loaded) == 2 * 1 * 8 * 2 * 2
    assert profile.token_bytes(loaded, "bfloat16") == 64
    assert profile.token_bytes(loaded, "fp8") == 32
    assert profile.token_bytes(loaded, "int8_per_token_head") == (8 * 2 + 8) + 32


def test_a_format_overrides_the_steps_costs() -> None:
    keys = {
        "backend": "B",
        "attention_bandwidth_bytes_per_s": 7.0,
        "sequence_s": 0.0,
        "prefill_pair_s": 3.0,
        "read_penalty": 2,
    }
    content = changed(
        "formats.fp8", keys | {"conversion_step_s": 4, "conversion_stored_s": 5, "conversion_prefill_s": 6}
    )
    content["step"] |= {"token_s": 1.0, "sequence_s": 2.0, "prefill_pair_s": 1.0}
    loaded = profile.Profile.model_validate(content)
    base, cost = profile.step_cost(loaded, "bfloat16"), profile.step_cost(loaded, "fp8")
    assert (base.sequence_s, base.prefill_pair_s, base.attention_bandwidth_bytes_per_s, base.read_penalty) == (
        2,
        1,
        1e6,
        1,
    )
    assert (cost.sequence_s, cost.prefill_pair_s, cost.attention_bandwidth_bytes_per_s, cost.read_penalty) == (
        0,
        3,
        7,
        2,
    )
    assert (cost.conversion_step_s, cost.conversion_stored_s, cost.conversion_prefill_s) == (4, 5, 6)
    assert (cost.token_s, cost.weight_bytes, cost.fixed_s) == (1, 100, 0.001)

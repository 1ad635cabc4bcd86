import msgspec
import pytest

from loadgen.errors import ExperimentError, UserError
from loadgen.records import (
    ArmSpec,
    BlockEnd,
    EngineScrape,
    ExperimentManifest,
    Health,
    Manifest,
    Sample,
    Scrape,
    ServerFacts,
    StageMark,
)
from loadgen.store import BlockWriter, block_folder, read_block, read_experiment, read_lines, read_once, write_once

EXPERIMENT = ExperimentManifest(
    loadgen="0",
    command="loadgen",
    scenario="s",
    scenario_text="name: s",
    plan_digest="d",
    arms=(ArmSpec(name="bf16", engine="vllm"),),
    order=(0, 0),
    restart="never",
    started_at="2026-01-01T00:00:00+00:00",
)


def manifest(order: int) -> Manifest:
    return Manifest(
        loadgen="0",
        scenario="s",
        plan_digest="d",
        seed=1,
        salt="x",
        arm="bf16",
        repeat=order,
        order=order,
        restart="never",
        url="http://h",
        started_at="2026-01-01T00:00:00+00:00",
        stages=(),
    )


def sample(index: int) -> Sample:
    return Sample(
        index=index,
        stage="s",
        sent_s=0.1,
        events_s=(0.2, 0.3),
        end_s=0.4,
        planned_prompt_tokens=1,
        planned_output_tokens=2,
    )


def written(root, order: int, samples: int = 3):
    folder = block_folder(root, order, "bf16")
    write_once(folder, manifest(order))
    write_once(folder, ServerFacts(engine="vllm", version="0.32.0"))
    writer = BlockWriter(folder)
    for index in range(samples):
        writer.append(sample(index))
    writer.append(Scrape(at_s=0.1, took_s=0.01, engines=(EngineScrape(engine="0", values={"running": 1.0}),)))
    writer.append(Health(at_s=0.1, interval_s=0.25, loop_lag_max_s=0.0, cpu_s=0.0, rss_bytes=1, in_flight=1))
    writer.append(StageMark(stage="s", started_s=0, ended_s=1, planned=3, sent=3, unsent=0, ok=3, failed=0))
    writer.close()
    writer.close()
    return folder


def test_what_was_appended_is_what_is_read(tmp_path):
    write_once(tmp_path, EXPERIMENT)
    for order in (0, 1):
        write_once(written(tmp_path, order), BlockEnd(ended_s=1.0, how="complete"))
    run = read_experiment(tmp_path)
    assert run.manifest == EXPERIMENT
    assert [block.manifest.order for block in run.blocks] == [0, 1]
    assert run.blocks[0].samples == (sample(0), sample(1), sample(2))
    assert run.blocks[0].facts.version == "0.32.0"
    assert (len(run.blocks[0].scrapes), len(run.blocks[0].health), len(run.blocks[0].marks)) == (1, 1, 1)


def test_a_line_cut_off_by_a_crash_is_left_out_and_the_block_has_no_end(tmp_path):
    folder = written(tmp_path, 0)
    whole = (folder / "samples.jsonl").read_bytes()
    for cut in range(1, len(msgspec.json.encode(sample(2))) + 1):
        (folder / "samples.jsonl").write_bytes(whole[:-cut])
        block = read_block(folder)
        assert block is not None
        assert block.samples == (sample(0), sample(1))
        assert block.end is None


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    folder = written(tmp_path, 0)
    lines = (folder / "samples.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "samples.jsonl").write_bytes(lines[0] + b'{"index": "x"}\n' + lines[2])
    with pytest.raises(UserError, match=r"samples\.jsonl: line 2: "):
        list(read_lines(folder, Sample))


@pytest.mark.parametrize(
    "damage", [b'{"x":' + b"[" * 100_000, b'{"index":' + b"9" * 5000, b'{"stage":"\xff"}', b"\0", b""]
)
def test_any_damage_is_one_line(tmp_path, damage):
    folder = written(tmp_path, 0)
    (folder / "samples.jsonl").write_bytes(damage + b"\n")
    with pytest.raises(UserError, match=r"samples\.jsonl: line 1: not a loadgen Sample") as caught:
        read_block(folder)
    assert len(caught.value.complaints) == 1
    (folder / "end.json").write_bytes(damage)
    with pytest.raises(UserError, match=r"end\.json: not a loadgen BlockEnd"):
        read_once(folder, BlockEnd)


def test_a_folder_that_is_no_run_is_named(tmp_path):
    with pytest.raises(UserError, match="not a run directory"):
        read_experiment(tmp_path)
    (tmp_path / "experiment.json").write_text("{}")
    with pytest.raises(UserError, match=r"experiment\.json: not a loadgen ExperimentManifest"):
        read_experiment(tmp_path)


def test_a_block_that_never_got_its_manifest_is_not_there(tmp_path):
    write_once(tmp_path, EXPERIMENT)
    written(tmp_path, 0)
    block_folder(tmp_path, 1, "bf16").mkdir()
    assert len(read_experiment(tmp_path).blocks) == 1


def test_a_disk_that_refuses_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ExperimentError, match="cannot write"):
        write_once(tmp_path / "file" / "below", EXPERIMENT)
    with pytest.raises(ExperimentError, match="cannot write"):
        BlockWriter(tmp_path / "file" / "below")


def test_an_arm_named_like_a_path_stays_within_its_folder(tmp_path):
    assert block_folder(tmp_path, 7, "../x y").parent == tmp_path / "blocks"

"""A run directory with one file replaced: it is read as far as it goes, or one complaint names the file.

An input's first line is the file's name (see FILES), the rest what stands in it. Where it is no such name, the whole
is what stands in the file that its length picks.
"""

import files
import fuzzing

with fuzzing.instrumented():
    import msgspec

    from loadgen.errors import UserError
    from loadgen.records import (
        ArmSpec,
        Block,
        BlockEnd,
        EngineScrape,
        Experiment,
        ExperimentManifest,
        Health,
        Manifest,
        Sample,
        Scrape,
        ServerFacts,
        StageMark,
        StageSpec,
    )
    from loadgen.store import LINES, ONCE, BlockWriter, block_folder, read_experiment, read_lines, write_once

ROOT = files.folder()
FOLDER = block_folder(ROOT, 0, "bf16")
STARTED = "2026-01-01T00:00:00+00:00"
RECORDS = {
    Sample: Sample(
        index=0, stage="s", sent_s=0.5, events_s=(1.0, 1.5), end_s=2.0, planned_prompt_tokens=4, planned_output_tokens=2
    ),
    Scrape: Scrape(at_s=1.0, took_s=0.01, engines=(EngineScrape(engine="0", values={"running": 1.0}),)),
    Health: Health(at_s=1.0, interval_s=1.0, loop_lag_max_s=0.001, cpu_s=0.1, rss_bytes=1, in_flight=1),
    StageMark: StageMark(stage="s", started_s=0.0, ended_s=2.0, planned=1, sent=1, unsent=0, ok=1, failed=0),
}
FILES = {
    name: (ROOT if kind is ExperimentManifest else FOLDER) / name
    for kind, name in {**LINES, **ONCE}.items()
    if name != "plan.json"
}
PARTS = Block.__struct_fields__
SIZES = "abcdefghijklmnopqrstuvwxyz"
KINDS = {name: kind for kind, name in LINES.items()}


def make() -> None:
    """A whole run directory of one block."""
    write_once(
        ROOT,
        ExperimentManifest(
            loadgen="0",
            command="loadgen",
            scenario="s",
            scenario_text="name: s",
            plan_digest="d",
            arms=(ArmSpec(name="bf16", engine="vllm"),),
            order=(0,),
            restart="never",
            started_at=STARTED,
        ),
    )
    writer = BlockWriter(FOLDER)
    for record in RECORDS.values():
        writer.append(record)
    writer.close()
    write_once(
        FOLDER,
        Manifest(
            loadgen="0",
            scenario="s",
            plan_digest="d",
            seed=1,
            salt="x",
            arm="bf16",
            repeat=0,
            order=0,
            restart="never",
            url="http://127.0.0.1:1",
            started_at=STARTED,
            stages=(StageSpec(name="s", role="one_stream", concurrency=1),),
        ),
    )
    write_once(FOLDER, ServerFacts(engine="vllm", version="0.32.0"))
    write_once(FOLDER, BlockEnd(ended_s=2.0, how="complete"))


make()
WHOLE = {name: path.read_bytes() for name, path in FILES.items()}


def read() -> Experiment | None:
    """The directory as it is; None if it was refused."""
    try:
        return read_experiment(ROOT)
    except UserError as error:
        fuzzing.check_complaints(error.complaints, most=1)
        return None


def check_cut(name: str, content: bytes) -> None:
    """A file of lines that a crash cut off has what its whole lines have, and no line that is not whole."""
    whole = content[: content.rfind(b"\n") + 1]
    kept = list(read_lines(FOLDER, KINDS[name]))
    FILES[name].write_bytes(whole)
    assert list(read_lines(FOLDER, KINDS[name])) == kept
    assert len(kept) == whole.count(b"\n")


def one_input(data: bytes) -> None:
    """Reads, writes what was read, and reads the same again."""
    first, _, content = data.partition(b"\n")
    name = first.decode("ascii", "replace")
    if name not in FILES:
        name, content = sorted(FILES)[len(data) % len(FILES)], data
    path = FILES[name]
    path.write_bytes(content)
    try:
        experiment = read()
        if experiment is not None:
            assert set(experiment.manifest.order) <= set(range(len(experiment.manifest.arms)))
            for block in experiment.blocks:
                fuzzing.outcome(name, *(SIZES[len(str(getattr(block, part))) // 20 % 26] for part in PARTS))
                assert msgspec.json.decode(msgspec.json.encode(block), type=Block) == block
            if name in KINDS and experiment.blocks:
                check_cut(name, content)
    finally:
        path.write_bytes(WHOLE[name])


if __name__ == "__main__":
    fuzzing.fuzz(one_input, "store", most_bytes=4096, has_json=True)

"""A scenario file: a scenario, or a line per complaint."""

import files
import fuzzing

with fuzzing.instrumented():
    from loadgen.errors import UserError
    from loadgen.workload import scenario

FILE = files.folder() / "s.yaml"


def one_input(data: bytes) -> None:
    """A scenario whose bounds hold, or complaints."""
    FILE.write_bytes(data)
    try:
        read = scenario.load(FILE)
    except UserError as error:
        fuzzing.check_complaints(error.complaints)
        return
    assert read.stages
    assert len({stage.name for stage in read.stages}) == len(read.stages)
    fuzzing.check_line(read.name)
    read.model_dump_json()


if __name__ == "__main__":
    fuzzing.fuzz(one_input, "scenario", most_bytes=2048)

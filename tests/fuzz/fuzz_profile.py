"""A profile of the emulator: a machine that can be built, or a line per complaint."""

import math

import files
import fuzzing

with fuzzing.instrumented():
    from loadgen.emulator import arm, profile
    from loadgen.errors import UserError

FILE = files.folder() / "p.yaml"


def one_input(data: bytes) -> None:
    """A profile from which every arm can be made or is refused, or complaints."""
    FILE.write_bytes(data)
    try:
        read = profile.load(str(FILE))
    except UserError as error:
        fuzzing.check_complaints(error.complaints)
        return
    for name in read.formats:
        try:
            emulated = arm.emulated(read, {"kv-cache-dtype": name})
        except UserError as error:
            fuzzing.check_complaints(error.complaints)
        else:
            assert emulated.capacity_tokens > 0
            assert math.isfinite(emulated.cost.bytes_per_token)


if __name__ == "__main__":
    fuzzing.fuzz(one_input, "profile", most_bytes=2048)

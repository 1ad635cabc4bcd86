"""An engine's file of flags: flag -> text, or a line per complaint."""

import files
import fuzzing

with fuzzing.instrumented():
    from loadgen.errors import UserError
    from loadgen.server.arms import read_flags

FILE = files.folder() / "a.yaml"


def one_input(data: bytes) -> None:
    """Flags that can be put on a command line, or complaints."""
    FILE.write_bytes(data)
    try:
        flags = read_flags(FILE)
    except UserError as error:
        fuzzing.check_complaints(error.complaints)
        return
    for flag, value in flags.items():
        (flag + value).encode()
        assert "\0" not in flag + value


if __name__ == "__main__":
    fuzzing.fuzz(one_input, "flags", most_bytes=1024)

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from loadgen.emulator.options import Options, read
from loadgen.errors import UserError
from loadgen.server.launch import flag_arguments


def test_the_command_line_that_an_arm_is_started_with():
    flags = {"kv-cache-dtype": "fp8", "enable-prefix-caching": "false", "enable-chunked-prefill": "true"}
    arguments = flag_arguments({"profile": "p", **flags})
    read_back = read(["--host", "127.0.0.1", "--port", "8100", *arguments])
    assert read_back == Options(profile="p", port=8100, flags=flags)


def test_own_options_and_a_profile_by_its_place():
    line = "p.yaml --seed=4 --machine_seed 2 --origin 1.5 --record f --fault a=1@2 --fault b"
    options = read([*line.split(), "--log-version", "0.9.2", "--max-num-seqs=8"])
    assert options == Options(
        profile="p.yaml",
        seed=4,
        machine_seed=2,
        origin_s=1.5,
        record="f",
        faults=("a=1@2", "b"),
        log_version="0.9.2",
        flags={"max-num-seqs": "8"},
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "profile: none given"),
        (["a", "--profile", "b"], r"profile: several given \(b, a\)"),
        (["a", "--port"], "--port: needs a value"),
        (["a", "--port", "65536"], "--port=65536: should be a whole number from 0 to 65535"),
        (["a", "--seed", "1.5"], "--seed=1.5: should be a whole number"),
        (["a", "--origin", "nan"], "--origin=nan: should be a number from 0"),
    ],
)
def test_mistakes(arguments, complaint):
    with pytest.raises(UserError, match=complaint):
        read(arguments)


@given(st.lists(st.text(alphabet="-=ab 1\n", max_size=8), max_size=6))
def test_any_line_is_read_or_refused(arguments):
    with suppress(UserError):
        options = read(["p", *arguments])
        assert options.profile == "p"

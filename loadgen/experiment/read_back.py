"""What an emulated arm is found to be, by the way that a real one goes: its log and what its endpoints would answer."""

from datetime import datetime

import msgspec

from loadgen.emulator import lines
from loadgen.emulator.arm import Emulated
from loadgen.emulator.facts import facts
from loadgen.emulator.metrics import cache_config, numbers
from loadgen.engines.table import ENGINES
from loadgen.records import ServerFacts
from loadgen.server.facts import Answers, assembled
from loadgen.server.log_facts import read_log


def log_text(arm: Emulated, at: datetime) -> str:
    """The log that a server of this kind would print until it listens, begun by a line that says that none did."""
    said = (lines.banner(arm), *lines.start_lines(arm, host="nowhere", port=0))
    return "".join(f"{lines.written(line, at=at, pid=1, version=arm.profile.version)}\n" for line in said)


def read_back(arm: Emulated, log: str) -> ServerFacts:
    """The facts as read from `log` and the labels of vllm:cache_config_info; the profile's where vLLM keeps silent."""
    engine, known = ENGINES["emulator"], facts(arm)
    answers = Answers(
        version=arm.profile.version,
        model=arm.served_name,
        max_model_len=arm.max_model_len,
        cache=cache_config(arm, numbers(arm.profile.version)),
    )
    read = assembled(answers, read_log(log, engine), engine=engine, has_log=True)
    silent = {name: getattr(known, name) for name in read.__struct_fields__ if getattr(read, name) in (None, ())}
    return msgspec.structs.replace(read, **silent)

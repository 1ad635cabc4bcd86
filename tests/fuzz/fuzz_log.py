"""A server's log: its facts and its last words, whatever stands in it."""

import fuzzing

with fuzzing.instrumented():
    import msgspec

    from loadgen.engines import vllm
    from loadgen.records import ServerFacts
    from loadgen.server.facts import Answers, assembled
    from loadgen.server.log import last_line, lines, telling_lines
    from loadgen.server.log_facts import read_log

LONGEST = 601


def one_input(data: bytes) -> None:
    """Messages are lines; what is told of them is short; the facts survive JSON."""
    text = data.decode("utf-8", "replace")
    messages = list(lines(text))
    assert not any("\n" in message.text or "\r" in message.text for message in messages)
    told = telling_lines(text)
    assert len(told) <= 4
    assert all(len(line) <= LONGEST and "\n" not in line for line in told)
    assert "\n" not in last_line(text)
    seen = read_log(text, vllm.ENGINE)
    assert all(len(line) <= LONGEST for line in (*seen.telling, *seen.marks))
    assert seen.capacity_tokens is None or seen.capacity_tokens >= 0
    facts = assembled(Answers(), seen, engine=vllm.ENGINE, has_log=True)
    fuzzing.outcome(*(bool(getattr(facts, part)) for part in facts.__struct_fields__), len(facts.backends))
    assert msgspec.json.decode(msgspec.json.encode(facts), type=ServerFacts) == facts


if __name__ == "__main__":
    fuzzing.fuzz(one_input, "log", most_bytes=4096)

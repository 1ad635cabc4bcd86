"""The same answer to /v1/models, /version and /metrics: facts, a model to ask for, or a refusal in one line."""

import answers
import fuzzing

with fuzzing.instrumented():
    import msgspec

    from loadgen.drive.calibrate import vocabulary
    from loadgen.engines import vllm
    from loadgen.errors import ServerError, UserError
    from loadgen.records import ServerFacts
    from loadgen.server import facts, probe

URL = "http://127.0.0.1:1"


async def facts_of(data: bytes) -> None:
    """Facts that can be written and read."""
    found = await facts.read_facts(url=URL, log_text=None, engine=vllm.ENGINE, transport=answers.answering(data))
    assert msgspec.json.decode(msgspec.json.encode(found), type=ServerFacts) == found


async def probed(data: bytes) -> None:
    """A model's name, or a refusal."""
    found = await probe.check(URL, model=None, need_context=100, transport=answers.answering(data))
    found.model.encode()
    await probe.check(URL, model=found.model, transport=answers.answering(data))


async def learned(data: bytes) -> None:
    """A server that answers the same to everything can be of no use, and says so."""
    await vocabulary(base_url=URL, model="m", endpoint="completions", transport=answers.answering(data))


def one_input(data: bytes) -> None:
    """Each asker, by itself."""
    for asker in (facts_of, probed, learned):
        try:
            answers.LOOP.run_until_complete(asker(data))
        except (ServerError, UserError) as error:
            fuzzing.outcome(asker.__name__, str(error))
            fuzzing.check_line(str(error))
        else:
            fuzzing.outcome(asker.__name__)


if __name__ == "__main__":
    fuzzing.fuzz(one_input, "endpoints", most_bytes=2048, has_json=True)

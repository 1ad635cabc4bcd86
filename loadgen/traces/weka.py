"""WEKA's agent traces (kv-cache-tester; SemiAnalysis cc-traces-weka): a JSON object per conversation, with sub-agents.

`t` counts seconds from the beginning of the conversation, in a sub-agent's requests from the beginning of the
sub-agent. A sub-agent is a session of its own: its first turn follows the turn that spawned it, and the first later
turn of its parent that began after it had ended joins it. A sub-agent that no turn joins is left to itself.

think = what lies between a turn and the end (`t` + `api_time`) of the last one that it follows. The older form has
neither api_time nor think_time: then there are only arrivals.

Ids (`hash_ids`, of `block_size` tokens) are chained, and local to a conversation and its sub-agents, or global; they
are numbered anew, so that ids of two conversations never meet. The partial last block has an id in some corpora and
none in others. Where ids cover less than the prompt, the rest is new blocks, and a note counts such requests: the
format's own documentation has an example of it. Source: github.com/callanjfox/kv-cache-tester.
"""

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from loadgen.errors import UserError
from loadgen.traces.keys import text_has
from loadgen.traces.options import number as positive, whole
from loadgen.traces.rows import About, Format, Head, Item, Row, Source
from loadgen.traces.sources import document, files, head, objects, opened
from loadgen.traces.turns import early, required_id
from loadgen.traces.values import Place, blocks, name, number, tokens

ENDINGS = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
CLOCK_S = 1.0  # the published traces count whole seconds: an end and what waited for it may be so far apart
MOST_NESTED = 16
LOWEST_PER_S = 1e-6  # a conversation in twelve days
SECONDS = "seconds, 0 or more"
SPAWN = "subagent"


def recognises(of: Head) -> bool:
    """True if the file, or a folder's first JSON file by name, begins with a conversation."""
    if not of.path.is_dir():
        return _begins(of.text)
    first = next((file for file in of.files if file.endswith(ENDINGS)), None)
    try:
        return first is not None and _begins(head(of.path / first).text)
    except UserError:
        return False


def _begins(text: str) -> bool:
    return text_has(text, "requests", "t") and (text_has(text, "hash_ids") or text_has(text, "subagent_type"))


class _Turn(NamedTuple):
    """A turn that others may follow."""

    id: str
    end_s: float | None  # since the conversation's beginning


class _Step(NamedTuple):
    at_s: float  # since the conversation's beginning
    entry: dict[str, Any]
    key: str


class _Agent(NamedTuple):
    """A conversation or a sub-agent: who it is, when it began, which turn spawned it, where its requests stand."""

    session: str
    at_s: float
    spawned: _Turn | None
    requests: Any
    key: str
    depth: int


class _Reading:
    """What is remembered from conversation to conversation: their names, their ids' numbers, and what to tell."""

    def __init__(self) -> None:
        self.sessions: dict[str, Path] = {}
        self.told: Counter[str] = Counter()
        self.count = itertools.count()
        self.numbers: defaultdict[int, int] = defaultdict(self.count.__next__)
        self.scope: str | None = None

    def conversation(self, value: dict[str, Any], place: Place, start_ns: int) -> Iterator[Item]:
        """Its rows in order of time."""
        session = self._session(value, place)
        block_tokens = tokens(value.get("block_size"), place, "block_size")
        if not block_tokens:
            raise place.wrong("block_size", 0, "at least 1 token")
        yield About(block_tokens=block_tokens)
        self._scope(value.get("hash_id_scope", "local"), place)
        one = _Conversation(self, place, block_tokens, start_ns)
        one.agent(_Agent(session, 0.0, None, value.get("requests"), "requests", 0))
        yield from sorted(one.rows, key=lambda row: row.at_ns)

    def _session(self, value: dict[str, Any], place: Place) -> str:
        session = required_id(value.get("id"), place, "id")
        if session in self.sessions:
            raise place.wrong("id", session, f"of one conversation alone; {self.sessions[session]} has it too")
        self.sessions[session] = place.path
        return session

    def _scope(self, scope: Any, place: Place) -> None:
        if scope not in ("local", "global"):
            raise place.wrong("hash_id_scope", scope, "local or global")
        if self.scope not in (None, scope):
            raise place.wrong("hash_id_scope", scope, f"{self.scope}, as in the conversations before")
        self.scope = scope
        if scope == "local":
            self.numbers.clear()

    def notes(self, spread: str | None) -> Iterator[About]:
        if len(self.sessions) > 1:
            yield About(
                note=spread
                or f"each of the {len(self.sessions):,} conversations has a clock of its own: all start at 0 s; "
                "--option starts_per_s=RATE spreads them"
            )
        for text, count in (+self.told).items():
            yield About(note=early(count) if text == "early" else f"{count:,} {text}")


class _Conversation:
    """The rows of one conversation and its sub-agents."""

    def __init__(self, reading: _Reading, place: Place, block_tokens: int, start_ns: int) -> None:
        self.reading = reading
        self.place = place
        self.block_tokens = block_tokens
        self.start_ns = start_ns
        self.rows: list[Row] = []
        self.sessions: Counter[str] = Counter()

    def agent(self, of: _Agent) -> _Turn | None:
        """Takes in the rows of an agent and of those that it spawned; gives its last turn."""
        previous: _Turn | None = None
        running: list[_Turn] = []
        turn = 0
        for step in self._steps(of):
            if step.entry.get("type") == SPAWN:
                running += self._ran(of, step, previous or of.spawned)
                continue
            turn += 1
            joined = [one for one in running if one.end_s is None or one.end_s <= step.at_s + CLOCK_S]
            first = previous or of.spawned
            row = self._row(of, step, turn, ([first] if first else []) + joined)
            self.rows.append(row)
            if row.input_tokens and row.output_tokens:  # what will not be sent is followed by nobody
                running = [one for one in running if one not in joined]
                previous = _Turn(row.id or "", None if row.duration_s is None else step.at_s + row.duration_s)
        return previous

    def _ran(self, of: _Agent, step: _Step, spawner: _Turn | None) -> list[_Turn]:
        """A sub-agent's last turn, if it has one."""
        last = self.agent(self._spawned(of, step, spawner))
        if last is None:
            self.reading.told["sub-agents have no request to send"] += 1
            return []
        took_ms = step.entry.get("duration_ms")
        if last.end_s is not None or took_ms is None:
            return [last]
        took_ms = number(took_ms, self.place, f"{step.key}.duration_ms", "milliseconds, 0 or more")
        return [last._replace(end_s=step.at_s + took_ms / 1e3)]

    def _steps(self, of: _Agent) -> list[_Step]:
        """An agent's requests and sub-agents, in order of time."""
        if not isinstance(of.requests, list) or of.depth > MOST_NESTED:
            should = f"a list of requests, at most {MOST_NESTED} levels deep"
            raise self.place.wrong(of.key, of.requests, should)
        steps = []
        for index, entry in enumerate(of.requests):
            key = f"{of.key}[{index}]"
            if not isinstance(entry, dict) or entry.get("type") not in ("n", "s", SPAWN):
                raise self.place.wrong(key, entry, "a request, with type n, s or subagent")
            steps.append(_Step(of.at_s + number(entry.get("t"), self.place, f"{key}.t", SECONDS), entry, key))
        return sorted(steps, key=lambda step: step.at_s)

    def _spawned(self, of: _Agent, step: _Step, spawner: _Turn | None) -> _Agent:
        agent = name(step.entry.get("agent_id"), self.place, f"{step.key}.agent_id") or SPAWN
        session = f"{of.session}/{agent}"
        self.sessions[session] += 1
        if self.sessions[session] > 1:
            session = f"{session}~{self.sessions[session]}"
        requests = step.entry.get("requests")
        return _Agent(session, step.at_s, spawner, requests, f"{step.key}.requests", of.depth + 1)

    def _row(self, of: _Agent, step: _Step, turn: int, follows: list[_Turn]) -> Row:
        entry, key = step.entry, step.key
        duration_s = self._seconds(entry, "api_time", key)
        input_tokens = tokens(entry.get("in"), self.place, f"{key}.in")
        explicit = len(follows) > 1 or (of.spawned is not None and follows == [of.spawned])
        return Row(
            at_ns=self.start_ns + round(step.at_s * 1e9),
            input_tokens=input_tokens,
            output_tokens=tokens(entry.get("out"), self.place, f"{key}.out"),
            blocks=self._blocks(entry, input_tokens, key),
            id=name(f"{of.session}:{turn}", self.place, key),
            session=of.session,
            turn=turn,
            after=tuple(one.id for one in follows) if explicit else (),
            think_s=self._think_s(step, follows),
            kind=name(entry.get("model"), self.place, f"{key}.model"),
            duration_s=duration_s,
        )

    def _think_s(self, step: _Step, follows: list[_Turn]) -> float | None:
        given = self._seconds(step.entry, "think_time", step.key)
        ends_s = [one.end_s for one in follows if one.end_s is not None]
        if not follows or len(ends_s) < len(follows):
            return given if follows else None
        pause_s = step.at_s - max(ends_s)
        self.reading.told["early"] += pause_s < -CLOCK_S
        return round(max(0.0, pause_s), 6)

    def _seconds(self, entry: dict[str, Any], field: str, key: str) -> float | None:
        value = entry.get(field)
        return None if value is None else float(number(value, self.place, f"{key}.{field}", SECONDS))

    def _blocks(self, entry: dict[str, Any], input_tokens: int, key: str) -> tuple[int, ...]:
        ids = blocks(entry.get("hash_ids"), self.place, f"{key}.hash_ids")
        fewest, most = input_tokens // self.block_tokens, -(-input_tokens // self.block_tokens)
        if len(ids) > most:
            should = f"at most {most} for in {input_tokens} (blocks of {self.block_tokens} tokens)"
            raise self.place.wrong(f"number of {key}.hash_ids", len(ids), should)
        numbered = tuple(map(self.reading.numbers.__getitem__, ids))
        lacking = fewest - len(ids)
        if lacking <= 0 or not ids:
            return numbered
        self.reading.told[
            "requests have fewer hash_ids than blocks: the rest of their prompts is shared with none"
        ] += 1
        return numbered + tuple(itertools.islice(self.reading.count, lacking))


def rows(source: Source) -> Iterator[Item]:
    """The rows, conversation by conversation. Raises UserError at the first malformed one."""
    reading = _Reading()
    starts_ns, spread = _starts(source.options)
    for path in source.paths:
        found = [file for file in files(path) if file.name.endswith(ENDINGS)] if path.is_dir() else [path]
        if not found:
            raise UserError(f"{path}: a folder without JSON files; should hold conversations")
        for file in found:
            for line, value in _conversations(file):
                yield from reading.conversation(value, Place(file, line), next(starts_ns))
    yield from reading.notes(spread)


def _starts(options: Mapping[str, str]) -> tuple[Iterator[int], str | None]:
    """When each conversation starts, and how that is told: all at once, or one after the other at random."""
    seed = whole(options, "seed", 0)
    if "starts_per_s" not in options:
        return itertools.repeat(0), None
    per_s = positive(options, "starts_per_s")
    if per_s < LOWEST_PER_S:
        raise UserError(f"--option starts_per_s: {per_s:g}: should be at least {LOWEST_PER_S:g}")
    draws = random.Random(f"{seed}")
    gaps_ns = (round(draws.expovariate(per_s) * 1e9) for _ in itertools.count())
    told = f"starts of conversations are drawn: {per_s:g}/s, exponential gaps, seed {seed}"
    return itertools.accumulate(gaps_ns, initial=0), told


def _conversations(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """One per line, or one in the whole file."""
    with opened(path) as lines:
        first = next((line for line in lines if line.strip()), "")
    try:
        msgspec.json.decode(first)
    except (msgspec.DecodeError, ValueError, RecursionError):
        value = document(path)
        if not isinstance(value, dict):
            raise UserError(f"{path}: should be a JSON object, a conversation") from None
        yield 1, value
        return
    yield from objects(path)


FORMAT = Format(
    name="weka",
    label="JSON per conversation: id, block_size, requests with t (s), in, out, hash_ids, api_time; sub-agents",
    recognises=recognises,
    rows=rows,
    time_unit="s",
    options={
        "starts_per_s": "conversations start one after the other at this rate, at random [default: all at 0 s]",
        "seed": "of the random starts [default: 0]",
    },
    folders=True,
)

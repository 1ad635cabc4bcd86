"""An emulated engine with a clock that jumps: what a server process is in virtual time."""

from typing import Protocol

from loadgen.emulator.arm import Emulated
from loadgen.emulator.contents import Contents
from loadgen.emulator.model import Model, Sequence
from loadgen.emulator.tally import Tally
from loadgen.records import Request, Scrape


class Progress(Protocol):
    """How far a part of a stage has got; may be read at any time."""

    stage: str
    warmup: bool
    failed: int
    tokens: int

    @property
    def planned(self) -> int:
        """How many requests there are."""
        ...

    @property
    def done(self) -> int:
        """Requests that have ended."""
        ...


class Watch:
    """Who looks on while time is made to pass. Set `stop_asked`, and the part that runs ends where it is."""

    stop_asked = False

    def begins(self, part: Progress) -> None:
        """A part of a stage begins."""

    def scraped(self, scrape: Scrape) -> None:
        """The engine's account has been read."""


class Process:
    """An emulated engine with its clock, its account and what a scraper reads of it. `now_s` is machine time."""

    def __init__(
        self,
        arm: Emulated,
        *,
        seed: tuple[int, ...],
        machine_seed: tuple[int, ...] = (0,),
        watch: Watch | None = None,
    ) -> None:
        self.arm = arm
        self.model: Model = arm.model(seed=seed, machine_seed=machine_seed)
        self.contents = Contents(arm.limits.block_tokens)
        self.tally = Tally()
        self.watch = watch or Watch()
        self.now_s = 0.0
        self.scrapes: list[Scrape] = []
        self._origin_s = 0.0
        self._every_s = 0.25
        self._next_s = 0.0

    def begin(self, at_s: float, scrape_interval_s: float) -> None:
        """A block begins at machine time `at_s`: scrapes are on its clock."""
        self.now_s = self._origin_s = self._next_s = at_s
        self._every_s = scrape_interval_s
        self.scrapes = []

    def accept(self, request: Request, *, salt: str, arrived_s: float, payload: object) -> None:
        """A request arrives. Raises ValueError for one that the engine could never hold (see `virtual.check`)."""
        contents = self.contents.of(request, salt) if self.model.limits.prefix_caching else ()
        self.model.add(
            Sequence(
                prompt_tokens=request.prompt_tokens,
                output_tokens=request.output_tokens,
                arrived_s=arrived_s,
                contents=contents,
                payload=payload,
            )
        )

    def step(self) -> list[Sequence]:
        """One engine step from now on; the clock stands at its end. Gives the sequences that ended with it."""
        step = self.model.step(self.now_s)
        ended_s = step.started_s + step.took_s
        if self._next_s <= ended_s:
            self._read(ended_s)
        self.tally.note(step, self.model)
        self.now_s = ended_s
        return step.finished

    def wait(self, until_s: float) -> None:
        """Nothing to do until then."""
        self._read(until_s)
        self.now_s = max(self.now_s, until_s)

    def _read(self, until_s: float) -> None:
        while self._next_s <= until_s:
            at_s = self._next_s - self._origin_s
            self.scrapes.append(Scrape(at_s=at_s, took_s=0.0, engines=(self.tally.scrape(),)))
            self.watch.scraped(self.scrapes[-1])
            self._next_s += self._every_s

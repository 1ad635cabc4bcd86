"""The emulated engine in real time: steps end at absolute instants, and each one's tokens are handed out then."""

import asyncio
import time
from collections.abc import Callable, Hashable, Sequence as Items
from dataclasses import dataclass

from loadgen.emulator.account import Account
from loadgen.emulator.arm import Emulated
from loadgen.emulator.model import Sequence

# epoll counts in whole milliseconds and rounds up: the timer is set this much early, and the rest is waited for in
# turns of the event loop, which go on serving sockets.
FINE_S = 0.001
# A step whose tokens are this late is a late one: the engine's clock then goes on from now. Less is caught up with.
LATE_S = 0.005
ROUNDING_S = 1e-9  # sums of instants are not exact


@dataclass(slots=True, kw_only=True, eq=False)
class Ticket:
    """One request inside the engine, as its writer sees it."""

    sequence: Sequence
    finish_reason: str = "length"
    handed: int = 0  # tokens that are out
    ended: bool = False  # nothing more will come
    _waiter: "asyncio.Future[None] | None" = None

    async def more(self, than: int) -> bool:
        """True once more than `than` tokens are out; False if that will never be."""
        while self.handed <= than and not self.ended:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self.handed > than

    def hand(self) -> None:
        """One token more is out."""
        self.handed += 1
        self.ended = self.handed >= self.sequence.output_tokens
        self._wake()

    def end(self) -> None:
        """The engine, or the client, is gone."""
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Engine:
    """One engine process. `clock`: seconds, monotonic; `origin_s`: where the machine's own time begins on it.

    `late`: called with a message the first time that a step is late.
    """

    def __init__(
        self,
        arm: Emulated,
        account: Account,
        *,
        seed: int = 0,
        machine_seed: tuple[int, ...] = (0,),
        clock: Callable[[], float] = time.monotonic,
        origin_s: float | None = None,
        late: Callable[[str], None] = lambda message: None,
    ) -> None:
        self.account = account
        self.stopped = False
        self._model = arm.model(seed=(seed,), machine_seed=machine_seed)
        self._clock = clock
        self._origin_s = clock() if origin_s is None else origin_s
        self._late = late
        self._live: set[Ticket] = set()
        self._work = asyncio.Event()
        self._due_s = 0.0  # on the machine's own clock: when the next step may begin

    def submit(
        self,
        *,
        prompt_tokens: int,
        output_tokens: int,
        contents: Items[Hashable] = (),
        finish_reason: str = "length",
    ) -> Ticket:
        """A request has arrived."""
        sequence = Sequence(
            prompt_tokens=prompt_tokens, output_tokens=output_tokens, arrived_s=self._now_s(), contents=contents
        )
        ticket = Ticket(sequence=sequence, finish_reason=finish_reason)
        sequence.payload = ticket
        self._model.add(sequence)
        self._live.add(ticket)
        self._gauge()
        self._work.set()
        return ticket

    def abort(self, ticket: Ticket) -> None:
        """The client has gone; nothing happens where all tokens are out."""
        if ticket in self._live:
            self._live.discard(ticket)
            self._model.abort(ticket.sequence)
            self.account.aborted()
            self._gauge()
            ticket.end()

    def stop(self) -> None:
        """Ends every request as it is; nothing more comes out."""
        self.stopped = True
        for ticket in tuple(self._live):
            self.abort(ticket)

    async def run(self) -> None:
        """Steps while there is work, until cancelled."""
        while True:
            if not self._model.busy:
                self._work.clear()
                await self._work.wait()
                continue
            await self._step()

    async def _step(self) -> None:
        model = self._model
        newest_s = model.waiting[-1].arrived_s if model.waiting else 0.0
        step = model.step(max(self._due_s, newest_s))
        await self._until(step.ended_s)
        late_s = self._now_s() - step.ended_s
        self._due_s = step.ended_s
        if late_s > LATE_S:
            self._due_s += late_s
            if not self.account.late_steps:
                self._late(
                    f"a step ended {late_s * 1e3:.1f} ms after its time: where many do (they are counted in "
                    "loadgen_emulator_late_steps_total), this machine is too slow for the profile at this load"
                )
            self.account.late(late_s)
        self.account.note(step, model)
        for sequence in step.yielding:
            ticket = sequence.payload
            if isinstance(ticket, Ticket) and ticket in self._live:  # else its client left during the step
                ticket.hand()
                if ticket.ended:
                    self._live.discard(ticket)
                    self.account.end(sequence, ticket.finish_reason)

    def _gauge(self) -> None:
        self.account.gauge(self._model)

    def _now_s(self) -> float:
        return self._clock() - self._origin_s

    async def _until(self, at_s: float) -> None:
        loop = asyncio.get_running_loop()
        wait_s = at_s - self._now_s()
        await asyncio.sleep(max(0.0, wait_s - FINE_S))
        while (now_s := self._now_s()) < at_s - ROUNDING_S:
            await asyncio.sleep(0)
            if self._now_s() == now_s:  # a clock that stands still between turns jumps from timer to timer
                ring: asyncio.Future[None] = loop.create_future()
                loop.call_at(loop.time() + at_s - now_s, ring.set_result, None)
                await ring

"""What a person sees while an experiment runs: one line, redrawn once a second.

A full-screen display would cost milliseconds of the loop that stamps arrivals; this line costs microseconds.
Where the output is not a terminal, each step is a line of its own.
"""

import asyncio
import shutil
import sys
import time
from contextlib import suppress
from typing import Protocol, TextIO

from loadgen.records import Scrape


class Progress(Protocol):
    """The counters of the stage being driven (drive.run.Progress)."""

    stage: str
    warmup: bool
    planned: int
    failed: int

    @property
    def done(self) -> int:
        """Requests that have ended."""
        ...

    @property
    def tokens(self) -> int:
        """Output tokens so far."""
        ...


class Dashboard:
    """Shows steps and the state of the block being driven. Give it events; `run` redraws until cancelled."""

    def __init__(self, out: TextIO | None = None, interval_s: float = 1.0) -> None:
        self._out = out or sys.stderr  # None where standard error is closed
        self._live = self._out is not None and self._out.isatty()
        self._interval_s = interval_s if self._live else 15.0
        self._label = ""
        self._progress: Progress | None = None
        self._scrape: Scrape | None = None
        self._tokens: tuple[float, float] | None = None
        self._rate: float | None = None
        self._blocks = 0
        self._done_blocks_s: list[float] = []
        self._block_started = 0.0
        self._driving = False

    def say(self, text: str) -> None:
        """A step worth keeping on the screen."""
        self._write(("\r\x1b[K" if self._live else "") + text + "\n")

    def wait(self, text: str) -> None:
        """Something that takes a while and is not a stage (a server starting): replaces the line."""
        if self._live:
            self._draw(text)

    def block(self, label: str, *, blocks: int) -> None:
        """A block begins."""
        self._label, self._blocks, self._block_started = label, blocks, time.monotonic()
        self._progress, self._scrape, self._tokens, self._rate = None, None, None, None
        self._driving = True

    @property
    def driving(self) -> bool:
        """True while a block is being driven."""
        return self._driving

    def block_done(self) -> float:
        """A block ended; returns how many seconds it took."""
        took_s = time.monotonic() - self._block_started
        self._done_blocks_s.append(took_s)
        self._driving, self._progress = False, None
        return took_s

    def watch(self, progress: Progress) -> None:
        """Where to read how the block gets on."""
        self._progress = progress

    def scraped(self, scrape: Scrape) -> None:
        """The server's newest state."""
        self._scrape = scrape

    async def run(self) -> None:
        """Redraws until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            if self._progress is not None:
                line = self.line(time.monotonic())
                self._draw(line) if self._live else self.say("  " + line)

    def line(self, now_s: float) -> str:
        """The line as it stands: block, stage, done/total, tok/s, running, waiting, KV usage, ETA."""
        parts = [self._label]
        if self._progress is not None:
            failed = f" ({self._progress.failed} failed)" if self._progress.failed else ""
            stage = self._progress.stage + (" warm-up" if self._progress.warmup else "")
            parts.append(f"{stage} {self._progress.done}/{self._progress.planned}{failed}")
            if (rate := self._output_rate(now_s)) is not None:
                parts.append(f"{rate:,.0f} tok/s")
        parts.extend(_server_state(self._scrape))
        if self._done_blocks_s:
            mean_s = sum(self._done_blocks_s) / len(self._done_blocks_s)
            left_s = mean_s * (self._blocks - len(self._done_blocks_s)) - (now_s - self._block_started)
            parts.append(f"ETA {_clock(max(0.0, left_s))}")
        return " · ".join(parts)

    def _output_rate(self, now_s: float) -> float | None:
        tokens = _total(self._scrape, "generation_tokens")
        if tokens is None:
            tokens = float(self._progress.tokens) if self._progress else 0.0
        if self._tokens is not None and now_s > self._tokens[0]:
            fresh = max(0.0, tokens - self._tokens[1]) / (now_s - self._tokens[0])
            self._rate = fresh if self._rate is None else 0.5 * self._rate + 0.5 * fresh
        self._tokens = (now_s, tokens)
        return self._rate

    def _draw(self, text: str) -> None:
        self._write("\r\x1b[K" + text[: shutil.get_terminal_size().columns - 1])

    def clear(self) -> None:
        """Takes the line away."""
        if self._live:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        """Whoever looked on may have gone (`2>&1 | head`): the measurement goes on without them."""
        if self._out is not None:
            with suppress(OSError, ValueError):
                self._out.write(text)
                self._out.flush()


def _total(scrape: Scrape | None, name: str) -> float | None:
    values = [engine.values[name] for engine in scrape.engines if name in engine.values] if scrape else []
    return sum(values) if values else None


def _server_state(scrape: Scrape | None) -> list[str]:
    running, waiting = _total(scrape, "running"), _total(scrape, "waiting")
    usage = [e.values["kv_usage_ratio"] for e in scrape.engines if "kv_usage_ratio" in e.values] if scrape else []
    parts = []
    if running is not None:
        parts.append(f"running {running:.0f}")
    if waiting is not None:
        parts.append(f"waiting {waiting:.0f}")
    if usage:
        parts.append(f"KV {max(usage) * 100:.0f} %")
    return parts


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"

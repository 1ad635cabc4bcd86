"""An estimate in plain sentences: is there anything to free, and can a step get shorter? Pure.

ROOMY is the same bound by which a report calls a capacity not binding; below SMALL_GAIN a bound on a step's gain lies
within what a comparison of a few blocks cannot show.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from loadgen.engines.kv_held import Held
from loadgen.quantities import text
from loadgen.workload.estimate import StageEstimate

ROOMY = 0.9
SMALL_GAIN = 1.05
SMALL_RATIO = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusions:
    """`memory_binds`: some stage does not fit in the base format with room; `steps_gain`: some stage's steps could get
    shorter by more than SMALL_GAIN with half the cache. None: not known. `sentences`: the last one sums up.
    """

    memory_binds: bool | None
    steps_gain: bool | None
    sentences: tuple[str, ...]

    @property
    def nothing_to_free(self) -> bool | None:
        """True where a smaller cache can win neither room nor time; None where that is not known."""
        if self.memory_binds is None or self.steps_gain is None:
            return None
        return not self.memory_binds and not self.steps_gain


def conclusions(stages: Sequence[StageEstimate], formats: Sequence[Held]) -> Conclusions:
    """What the stages' estimates say. `formats` are those of the estimates, the base first."""
    binds = _any([_binds(one) for one in stages])
    gains = _any([_gains(one) for one in stages])
    sentences = [line for one in stages for line in (_memory(one), _time(one), *_short(one, formats)) if line]
    return Conclusions(memory_binds=binds, steps_gain=gains, sentences=(*sentences, _summary(binds, gains)))


def _any(known: Sequence[bool | None]) -> bool | None:
    return None if None in known or not known else any(known)


def _binds(one: StageEstimate) -> bool | None:
    return None if one.base.of_cache_ratio is None else one.base.of_cache_ratio > ROOMY


def _gains(one: StageEstimate) -> bool | None:
    return one.base.steps[-1].halved_speedup >= SMALL_GAIN if one.base.steps else None


def _memory(one: StageEstimate) -> str | None:
    share, held = one.base.of_cache_ratio, one.base.held
    if share is None or held is None:
        return None
    if share <= ROOMY:
        return (
            f"{one.stage}: the whole demand fits in 16 bits with room: its peak takes {text(share, 'ratio')} of the "
            f"cache's memory; what a smaller format frees would stay empty"
        )
    asks = f"{one.stage}: its peak asks for {text(share, 'ratio')} of the cache's memory in 16 bits, which"
    if held >= one.in_flight:
        return f"{asks} just hold all {one.in_flight:,} requests"
    others = ", ".join(f"{row.format} {row.held:,}" for row in one.formats[1:])
    more = f"; {others}" if others else ""
    return f"{asks} hold {held:,} of {one.in_flight:,} requests{more}"


def _time(one: StageEstimate) -> str | None:
    if not one.base.steps:
        return None
    most = one.base.steps[-1]
    streams = "one stream" if most.streams == 1 else f"{most.streams:,} streams"
    share = f"the cache is {text(most.cache_ratio, 'ratio')} of the bytes that a decode step of {streams} moves"
    why = "weights dominate each step: " if most.halved_speedup < SMALL_GAIN else ""
    return f"{one.stage}: {why}{share}; half of it makes a step at most {most.halved_speedup:.2f}x as fast"


def _short(one: StageEstimate, formats: Sequence[Held]) -> list[str]:
    """Where contexts are too short for a window or a residual to tell."""
    lines = []
    for held, row in zip(formats, one.formats, strict=True):
        if held.residual is not None and row.real_ratio < SMALL_RATIO:
            lines.append(
                f"{one.stage}: {held.name} keeps the newest {held.residual.tokens} tokens in 16 bits, and requests of "
                f"{one.request_tokens:,} tokens are hardly longer: it shrinks the cache by {row.real_ratio:.2f}x only"
            )
    windows = [part.window for part in formats[0].parts if part.window is not None]
    if windows and one.request_tokens <= min(windows):
        lines.append(
            f"{one.stage}: requests of {one.request_tokens:,} tokens are short of the window of {min(windows):,}: its "
            f"layers hold every token, like the others"
        )
    return lines


def _summary(binds: bool | None, gains: bool | None) -> str:
    missing = [option for option, known in (("--memory", binds), ("--weights", gains)) if known is None]
    if binds is None or gains is None:
        return f"Give {' and '.join(missing)} to learn whether anything is there to be won."
    return {
        (False, False): "There is nothing to free here: no stage needs the memory, and weights dominate each step.",
        (False, True): "No stage needs the memory: only shorter steps can pay, where the format is read as it is.",
        (True, False): "Steps will hardly get shorter: only more requests at once can pay.",
        (True, True): "Both more requests at once and shorter steps can pay: measure it with loadgen compare.",
    }[binds, gains]

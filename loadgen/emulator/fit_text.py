"""A fitted profile as YAML, and a fit as a person reads it."""

from collections.abc import Iterator

import yaml

from loadgen.emulator.fit import NO_READ_BYTES_PER_S, Calibration
from loadgen.emulator.fit_terms import Fitted, Term
from loadgen.emulator.profile import Profile


def as_yaml(profile: Profile) -> str:
    """The file that `profile.load` reads; what is at its default is left out."""
    content = profile.model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump(content, sort_keys=False, width=120, allow_unicode=True)


def lines(calibration: Calibration) -> Iterator[str]:
    """Each coefficient with its interval, how much the fit explains, and the notes."""
    fitted = calibration.fitted
    yield f"{'term':32} {'value':>12}  {'95 % interval':28} what it is"
    for term in fitted.terms:
        yield f"{term.label:32} {_value(term):>12}  {_interval(term):28} {term.meaning}"
    yield ""
    yield explained(fitted)
    yield ""
    yield from (f"  ! {note}" for note in calibration.notes)


def explained(fitted: Fitted) -> str:
    """How good the fit is, in words."""
    return (
        f"The fit explains {fitted.explained_ratio:.1%} of what makes one step longer than another, over "
        f"{len(fitted.seconds):,} steps; a typical step is off by {fitted.spread:.0%}."
    )


def _value(term: Term) -> str:
    return _figure(term, term.value)


def _interval(term: Term) -> str:
    if term.kept is not None:
        return "not fitted"
    if term.lo is None or term.hi is None:
        return "unknown: one block"
    ends = [_figure(term, term.lo), _figure(term, term.hi)]
    return " to ".join(reversed(ends) if term.name == "read_s_per_byte" else ends)  # a speed is the inverse


def _figure(term: Term, seconds: float) -> str:
    if term.name == "read_s_per_byte":
        speed = 1 / seconds if seconds > 1 / NO_READ_BYTES_PER_S else None
        return "no limit" if speed is None else f"{_digits(speed / 1e9)} GB/s"
    return f"{_digits(seconds * 1e6)} µs" if term.name != "prefill_pair_s" else f"{_digits(seconds * 1e9)} ns"


def _digits(value: float) -> str:
    """Four digits, of large numbers all before the point: 16,570 and not 1.657e+04."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"

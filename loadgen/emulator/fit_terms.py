"""The terms of a step's cost, regressed on the steps that were seen: non-negative, relative, robust, with intervals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.special import stdtrit

from loadgen.emulator.fit_steps import Seen

Values = NDArray[np.float64]

ROUNDS = 25
TURN = 1.5  # residuals beyond so many spreads count less (Huber 1964)
SPREAD_OF_MAD = 1.4826
MOST_UNSURE = 0.05  # of a step's time, by which a term that counts as told may be off
FEWEST_BLOCKS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The steps of one stage of one block."""

    kv_dtype: str
    bytes_per_token: float
    block: int  # its place in the experiment
    stage: str
    seen: tuple[Seen, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """What one coefficient multiplies. `of`: one format's own; `test_only`: no term of the base format."""

    name: str
    value: Callable[[Seen, float], float]
    own: bool = False
    test_only: bool = False
    meaning: str


# In the order in which a term is given up where the run cannot tell it from the others.
COLUMNS: tuple[Column, ...] = (
    Column(name="front_s", value=lambda s, b: s.from_idle, meaning="from sending to the engine and back, when idle"),
    Column(name="prefill_pair_s", value=lambda s, b: s.work.prefill_pairs, meaning="attention inside a prefill"),
    Column(
        name="conversion_stored_s",
        value=lambda s, b: s.work.new_tokens,
        own=True,
        test_only=True,
        meaning="conversion of each token stored",
    ),
    Column(
        name="conversion_prefill_s",
        value=lambda s, b: s.work.prefill_tokens,
        own=True,
        test_only=True,
        meaning="conversion of each token prefilled",
    ),
    Column(
        name="conversion_step_s",
        value=lambda s, b: s.steps,
        own=True,
        test_only=True,
        meaning="conversion in each step",
    ),
    Column(name="sequence_s", value=lambda s, b: s.work.sequences, meaning="each sequence that yields a token"),
    Column(
        name="read_s_per_byte",
        value=lambda s, b: s.work.context_tokens * b,
        own=True,
        meaning="reading the cache; its inverse is attention_bandwidth_bytes_per_s",
    ),
    Column(name="token_s", value=lambda s, b: s.work.new_tokens, meaning="each token computed"),
    Column(name="fixed_s", value=lambda s, b: s.steps, meaning="each step, reading the weights included"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A fitted coefficient. `kv_dtype` is None where all formats share it. `kept`: why it was not fitted."""

    name: str
    kv_dtype: str | None
    value: float
    lo: float | None = None
    hi: float | None = None
    kept: str | None = None
    meaning: str = ""

    @property
    def label(self) -> str:
        """Name and format."""
        return self.name if self.kv_dtype is None else f"{self.name} ({self.kv_dtype})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """All terms, and what they leave over. `expected_s` and `seconds`: one per step, in the groups' order."""

    terms: tuple[Term, ...]
    seconds: Values
    expected_s: Values
    explained_ratio: float  # of the variation of the logarithm of step times, outliers down-weighted
    spread: float  # standard deviation of the logarithm that is left, robust

    def value(self, name: str, kv_dtype: str | None = None) -> float:
        """A coefficient; 0 where there is no such term."""
        return next((t.value for t in self.terms if t.name == name and t.kv_dtype in (None, kv_dtype)), 0.0)


Key = tuple[str, str | None]


@dataclass(slots=True, kw_only=True)
class _Design:
    """Columns still fitted, and those given up with the reason."""

    x: dict[Key, Values]
    given_up: dict[Key, str] = field(default_factory=dict)

    def matrix(self) -> Values:
        return np.stack(list(self.x.values()), axis=1) if self.x else np.empty((0, 0))


def fit(groups: Sequence[Group], *, base: str, held: Mapping[Key, float] | None = None) -> Fitted:
    """Coefficients of every term for the formats in `groups`; `base` is the one that converts nothing.

    Minimizes the relative error: each step weighs 1 / its expected time, those far off less (iteratively reweighted
    non-negative least squares). `held`: coefficients that are known already, by (name, format or None).
    A term that the run cannot tell from the others (it could be off by more than 5 % of a step's time) is given up
    and kept at its default: 0, or the base format's own for reading the cache. Intervals (95 %) are by leaving out
    one block after the other; None with fewer than two blocks of a format.
    """
    held = held or {}
    seconds = np.array([seen.seconds for group in groups for seen in group.seen])
    x = _columns(groups, base)
    known = sum((held[key] * column for key, column in x.items() if key in held), np.zeros(len(seconds)))
    design = _Design(x={key: column for key, column in x.items() if key not in held})
    _without_work(design)
    while True:
        values, weights = _robust(design.matrix(), seconds, known)
        key = _untold(design, seconds, known, values, weights)
        if key is None:
            break
        known = known + _give_up(design, key, base, held)
    left = seconds - known
    ends = dict(zip(design.x, _intervals(design.matrix(), left, weights, groups), strict=False))
    terms = _terms(design, x, dict(zip(design.x, values, strict=True)), held, base)
    return _fitted(tuple(_with_ends(term, ends) for term in terms), seconds, design.matrix() @ values + known, weights)


def _columns(groups: Sequence[Group], base: str) -> dict[Key, Values]:
    formats = sorted({group.kv_dtype for group in groups}, key=lambda name: (name != base, name))
    rows = [(group, seen) for group in groups for seen in group.seen]
    found: dict[Key, Values] = {}
    for column in COLUMNS:
        values = np.array([float(column.value(seen, group.bytes_per_token)) for group, seen in rows])
        if not column.own:
            found[column.name, None] = values
            continue
        for kv_dtype in formats:
            if kv_dtype == base and column.test_only:
                continue
            found[column.name, kv_dtype] = values * np.array([group.kv_dtype == kv_dtype for group, _ in rows])
    return found


def _without_work(design: _Design) -> None:
    for key in [key for key, column in design.x.items() if not column.any()]:
        del design.x[key]
        design.given_up[key] = "the run has no such work"


def _give_up(design: _Design, key: Key, base: str, held: Mapping[Key, float]) -> Values:
    """Takes a term out; gives back what is known of it all the same (reading the cache costs what it does in base)."""
    column = design.x.pop(key)
    design.given_up[key] = "the run cannot tell it from the other terms"
    same = (key[0], base)
    if key[0] != "read_s_per_byte" or key == same:
        return np.zeros(len(column))
    if same in design.x:
        design.x[same] = design.x[same] + column
    return held.get(same, 0.0) * column


def _solved(x: Values, y: Values, weights: Values) -> Values:
    return np.asarray(nnls(x * weights[:, None], y * weights)[0], dtype=np.float64)


def _robust(x: Values, seconds: Values, known: Values) -> tuple[Values, Values]:
    """Coefficients, and the weight of each step's error in them."""
    weights = 1 / seconds
    values = np.zeros(x.shape[1])
    for _ in range(ROUNDS):
        values = _solved(x, seconds - known, weights)
        expected = np.maximum(x @ values + known, seconds * 1e-3)
        error = seconds / expected - 1
        spread = max(SPREAD_OF_MAD * float(np.median(np.abs(error))), 1e-9)
        weights = np.sqrt(np.minimum(1, TURN * spread / np.maximum(np.abs(error), 1e-12))) / expected
    return values, weights


def _untold(design: _Design, seconds: Values, known: Values, values: Values, weights: Values) -> Key | None:
    """The first term that is too unsure to be kept: its standard error times its column, against the step's time."""
    x = design.matrix() * weights[:, None]
    scale = np.sqrt((x**2).sum(axis=0))
    error = (seconds - known) * weights - x @ values
    variance = float((error**2).sum()) / max(1, len(seconds) - x.shape[1])
    inverse = np.linalg.pinv((x / scale).T @ (x / scale), rcond=1e-10, hermitian=True)
    lost = ~np.isclose(np.diag(inverse @ ((x / scale).T @ (x / scale))), 1.0, atol=1e-3)  # in the null space
    share = np.sqrt(variance * np.diag(inverse) / len(seconds))
    return next((key for key, unsure in zip(design.x, lost | (share > MOST_UNSURE), strict=True) if unsure), None)


def _intervals(x: Values, y: Values, weights: Values, groups: Sequence[Group]) -> list[tuple[float, float]]:
    """By the jackknife over blocks, Student's t; nothing where a format has too few blocks."""
    blocks = np.array([group.block for group in groups for _ in group.seen])
    counts = {kv: len({group.block for group in groups if group.kv_dtype == kv}) for kv in {g.kv_dtype for g in groups}}
    if min(counts.values()) < FEWEST_BLOCKS or not x.size:
        return []
    each = [_solved(x[blocks != one], y[blocks != one], weights[blocks != one]) for one in sorted(set(blocks.tolist()))]
    count = len(each)
    error = np.sqrt((count - 1) / count * ((np.array(each) - np.mean(each, axis=0)) ** 2).sum(axis=0))
    half = float(stdtrit(count - 1, 0.975)) * error
    center = _solved(x, y, weights)
    return list(zip(np.maximum(0, center - half).tolist(), (center + half).tolist(), strict=True))


def _terms(
    design: _Design, x: Mapping[Key, Values], values: Mapping[Key, float], held: Mapping[Key, float], base: str
) -> list[Term]:
    meanings = {column.name: column.meaning for column in COLUMNS}
    terms = []
    for key in x:
        kept = design.given_up.get(key)
        value = values.get(key, held.get(key, 0.0))
        if key in held:
            kept = "given"
        elif kept is not None:
            same = key[0] == "read_s_per_byte" and key[1] != base
            value = values.get((key[0], base), held.get((key[0], base), 0.0)) if same else 0.0
            kept = f"{kept}; kept {'as in ' + base if same else 'at 0'}"
        terms.append(Term(name=key[0], kv_dtype=key[1], value=float(value), kept=kept, meaning=meanings[key[0]]))
    return terms[::-1]


def _with_ends(term: Term, ends: Mapping[Key, tuple[float, float]]) -> Term:
    lo, hi = ends.get((term.name, term.kv_dtype), (None, None))
    return replace(term, lo=lo, hi=hi)


def _fitted(terms: tuple[Term, ...], seconds: Values, expected: Values, weights: Values) -> Fitted:
    expected = np.maximum(expected, 1e-9)
    error = np.log(seconds / expected)
    counts = (weights * expected) ** 2
    mean = float(np.average(np.log(seconds), weights=counts))
    total = float(np.average((np.log(seconds) - mean) ** 2, weights=counts))
    return Fitted(
        terms=terms,
        seconds=seconds,
        expected_s=expected,
        explained_ratio=1 - float(np.average(error**2, weights=counts)) / total if total else 0.0,
        spread=SPREAD_OF_MAD * float(np.median(np.abs(error - np.median(error)))),
    )

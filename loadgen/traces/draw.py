"""Which rows a sample keeps: groups drawn as wholes, rows within a window of time. Pure."""

from typing import Literal, NamedTuple

import msgspec
import numpy as np

from loadgen.errors import UserError
from loadgen.quantities import text
from loadgen.traces.columns import NONE, Columns, Floats
from loadgen.traces.reuse import Bools, Ints
from loadgen.traces.ties import families

By = Literal["auto", "family", "session", "row"]


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """What to keep: of the rows in `window_s` (from, to; seconds since the first row) a share, or about `count` rows.

    `by`: what is kept or dropped as a whole; auto: families where there are prefix blocks, else sessions where there
    are any, else rows. A session is in the window in which it begins. `keep_rate`: times move together so that the
    rate of arrivals is what it was; those of a session do not against each other.
    """

    share: float | None = None
    count: int | None = None
    window_s: tuple[float, float] | None = None
    by: By = "auto"
    seed: int = 0
    keep_rate: bool = False


class Drawn(NamedTuple):
    """`kept`: per row, in the order of time. `rows`, `groups`: as many to draw from; `largest_rows`: of the
    largest of these.

    `links` (per row): which rows wait for each other; `start_s`: when those begin. `scale`: of times.
    """

    by: By
    kept: Bools
    rows: int
    groups: int
    groups_kept: int
    largest_rows: int
    links: Ints
    start_s: Floats
    scale: float


def drawn(columns: Columns, links: Ints, cut: Cut) -> Drawn:
    """The rows to keep, the same for the same seed. `links`: per row, in the order of time.

    Of every sort of groups, from those that reuse little to those that reuse much, the same share is drawn. Raises
    UserError if what was asked for would tear apart what belongs together, or leaves nothing.
    """
    by = _by(columns, links, cut)
    start_s = np.full(int(links.max()) + 1, np.inf)
    np.minimum.at(start_s, links, columns.at_s)
    low, high = cut.window_s or (0.0, float("inf"))
    inside = (start_s[links] >= low) & (start_s[links] < high)
    if not inside.any():
        raise UserError(
            f"--window {low:g}:{high:g}: no request begins there; the trace is {columns.at_s[-1]:,.1f} s long"
        )
    share = _share(cut, int(inside.sum()))
    groups = _groups(columns, links, by, share)
    sizes = np.bincount(groups[inside])
    names = np.flatnonzero(sizes)
    chosen = _chosen(_by_reuse(columns, groups, names, inside), share, cut.seed) if share < 1 else names
    kept = inside & np.isin(groups, chosen)
    starts = [len(np.unique(links[rows])) for rows in (kept, inside)]
    return Drawn(
        by=by,
        kept=kept,
        rows=int(inside.sum()),
        groups=len(names),
        groups_kept=len(chosen),
        largest_rows=int(sizes.max()),
        links=links,
        start_s=start_s[links],
        scale=starts[0] / starts[1] if cut.keep_rate else 1.0,
    )


def shared_ratio(columns: Columns, rows: Bools) -> float | None:
    """The share of the rows' prompt tokens that an unlimited cache finds if they come alone; None: not known."""
    if columns.stretches is not None:
        return columns.stretches.kept_ratio(rows)
    known = rows & (columns.prefix_tokens != NONE)
    if not known.any():
        return None
    return float(columns.prefix_tokens[known].sum() / columns.input_tokens[rows].sum())


def _share(cut: Cut, rows: int) -> float:
    if cut.count is not None:
        return min(1.0, cut.count / rows)
    return 1.0 if cut.share is None else cut.share


def _by(columns: Columns, links: Ints, cut: Cut) -> By:
    linked = bool((columns.session != NONE).any()) or int(links.max()) + 1 < len(links)
    prefixes = columns.stretches is not None
    best: By = "family" if prefixes else "session" if linked else "row"
    if cut.by == "row" and best != "row":
        raise UserError(_torn(columns, cut, prefixes, best))
    if cut.by == "family" and not prefixes:
        raise UserError(f"--by family: the trace has no prefix blocks; should be {best}")
    if cut.by == "session" and not linked:
        raise UserError(f"--by session: the trace has no sessions; should be {best}")
    return best if cut.by == "auto" else cut.by


def _torn(columns: Columns, cut: Cut, prefixes: bool, best: By) -> str:
    should = f"should be --by {best}, or a --window of time"
    if not prefixes:
        return f"--by row: single rows torn out of their sessions are not this traffic; {should}"
    share = _share(cut, len(columns.at_s))
    alone = np.random.default_rng(cut.seed).random(len(columns.at_s)) < share
    alone[0] = True
    before, after = (shared_ratio(columns, rows) for rows in (np.ones_like(alone), alone))
    return (
        f"--by row: rows torn out of what shares their prefix find less: {text(share, 'ratio')} of the rows would "
        f"leave {text(after, 'ratio')} of prompt tokens shared instead of {text(before, 'ratio')}; {should}"
    )


def _groups(columns: Columns, links: Ints, by: By, share: float) -> Ints:
    if by == "row":
        return np.arange(len(links))
    return families(links, columns.stretches, share) if by == "family" and columns.stretches is not None else links


def _by_reuse(columns: Columns, groups: Ints, names: Ints, inside: Bools) -> Ints:
    """The named groups from those whose prompts find least in a cache to those that find most."""
    rows = groups[inside]
    prompts = np.bincount(rows, weights=columns.input_tokens[inside])[names]
    if columns.stretches is None:
        return names[np.argsort(prompts, kind="stable")]
    found = columns.stretches.found_tokens(columns.stretches.seen())
    return names[np.lexsort((prompts, np.bincount(rows, weights=found[inside])[names]))]


def _chosen(ordered: Ints, share: float, seed: int) -> Ints:
    """One at random of each so many neighbours, so that a small sample is of every sort; at least one in all."""
    rng = np.random.default_rng(seed)
    if share > 0.5:
        return np.setdiff1d(ordered, _one_of_each(ordered, len(ordered) - round(share * len(ordered)), rng))
    return _one_of_each(ordered, max(1, round(share * len(ordered))), rng)


def _one_of_each(ordered: Ints, count: int, rng: np.random.Generator) -> Ints:
    if count == 0:
        return ordered[:0]
    edges = np.rint(np.linspace(0, len(ordered), count + 1)).astype(np.int64)
    return ordered[rng.integers(edges[:-1], edges[1:])]

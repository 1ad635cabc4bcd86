"""What prompts share, and the LRU curve: against a cache played through block by block."""

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from loadgen.traces.reuse import Prefixes, Stretches, ladder

BLOCK = 4
Prompt = tuple[tuple[int, ...], int]


def prompts(paths: list[list[int]], lacking: list[int]) -> list[Prompt]:
    """Chained ids from paths through a tree, and prompt lengths whose last block may be partial."""
    numbers: dict[tuple[int, ...], int] = {}
    found = []
    for path, less in zip(paths, lacking, strict=True):
        ids = tuple(numbers.setdefault(tuple(path[: end + 1]), len(numbers)) for end in range(len(path)))
        found.append((ids, len(ids) * BLOCK - less))
    return found


def stretches(of: list[Prompt], order: list[int] | None = None) -> Stretches:
    prefixes = Prefixes()
    for ids, _ in of:
        prefixes.add(ids)
    places = np.array(order if order is not None else range(len(of)))
    return prefixes.stretches(places, np.array([tokens for _, tokens in of])[places], BLOCK)


def played(of: list[Prompt], capacity_tokens: int) -> float:
    cache: OrderedDict[int, None] = OrderedDict()
    found = 0
    for ids, tokens in of:
        hits = 0
        while hits < len(ids) and ids[hits] in cache:
            hits += 1
        found += min(hits * BLOCK, tokens)
        for id in reversed(ids):
            cache[id] = None
            cache.move_to_end(id)
        while len(cache) > capacity_tokens // BLOCK:
            cache.popitem(last=False)
    return found / sum(tokens for _, tokens in of)


TREES = st.lists(
    st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=7), st.integers(0, BLOCK - 1)), min_size=1, max_size=25
)


@settings(max_examples=60, deadline=None)
@given(TREES, st.integers(0, 40))
def test_the_curve_is_that_of_a_cache_played_through(tree: list[tuple[list[int], int]], blocks: int) -> None:
    of = prompts([path for path, _ in tree], [less for _, less in tree])
    found = stretches(of)
    assert found.lru_ratio(found.depths(), blocks * BLOCK) == pytest.approx(played(of, blocks * BLOCK))
    assert found.shared_ratio() == pytest.approx(played(of, 10**9))


@settings(max_examples=40, deadline=None)
@given(TREES, st.data())
def test_some_of_the_rows_share_what_they_share_alone(tree: list[tuple[list[int], int]], data: st.DataObject) -> None:
    of = prompts([path for path, _ in tree], [less for _, less in tree])
    kept = data.draw(st.lists(st.booleans(), min_size=len(of), max_size=len(of)).filter(any))
    alone = [one for one, keep in zip(of, kept, strict=True) if keep]
    assert stretches(of).kept_ratio(np.array(kept)) == pytest.approx(stretches(alone).shared_ratio())


@settings(max_examples=40, deadline=None)
@given(TREES)
def test_rows_of_a_session_are_the_same_rows(tree: list[tuple[list[int], int]]) -> None:
    of = prompts([path for path, _ in tree], [less for _, less in tree])
    by_session = Prefixes()
    for number, (ids, _) in enumerate(of):
        by_session.add(ids, session=number % 2)
    found = by_session.stretches(np.arange(len(of)), np.array([tokens for _, tokens in of]), BLOCK)
    assert found.head.tolist() == stretches(of).head.tolist()
    assert found.blocks.tolist() == stretches(of).blocks.tolist()


def test_rows_are_taken_in_order_of_time() -> None:
    of = prompts([[0, 0, 0], [0, 0], [0, 0, 0]], [0, 0, 0])
    in_time = stretches(of, [1, 0, 2])
    assert in_time.found_tokens(in_time.seen()).tolist() == [0, 2 * BLOCK, 3 * BLOCK]


def test_equal_ids_after_different_blocks_or_in_other_sessions_differ() -> None:
    prefixes = Prefixes()
    for ids, root in (((1, 2), 0), ((3, 2), 0), ((1, 2), 1), ((1, 2), 1)):
        prefixes.add(ids, root)
    found = prefixes.stretches(np.arange(4), np.full(4, 2 * BLOCK), BLOCK)
    assert found.found_tokens(found.seen()).tolist() == [0, 0, 0, 2 * BLOCK]


def test_a_session_finds_what_it_had_itself() -> None:
    found = stretches(prompts([[0, 0], [0, 0], [0, 0]], [0, 0, 1]))
    by_session = found.found_tokens(found.seen(np.array([0, 1, 0])))
    assert by_session.tolist() == [0, 0, 2 * BLOCK - 1]


def test_the_ladder_ends_where_nearly_all_is_found() -> None:
    paths = [[number % 97, 0, 1, 2] for number in range(400)]
    found = stretches(prompts(paths, [0] * 400))
    depths = found.depths()
    sizes = ladder(found, depths)
    assert sizes == [15_625 >> step for step in range(5, -1, -1)]
    assert found.lru_ratio(depths, sizes[-1]) >= 0.98 * found.shared_ratio()
    assert ladder(stretches(prompts([[0], [1]], [0, 0])), np.array([-1, -1])) == []


def test_ids_of_any_width() -> None:
    wide = 2**70
    prefixes = Prefixes()
    for ids in ((wide, wide + 1), (wide, wide + 2), (wide % 2**32, 5)):
        prefixes.add(ids)
    found = prefixes.stretches(np.arange(3), np.full(3, 2 * BLOCK), BLOCK)
    assert found.found_tokens(found.seen()).tolist() == [0, BLOCK, 0]

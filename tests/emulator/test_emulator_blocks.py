from hypothesis import given, strategies as st

from loadgen.emulator.blocks import BlockPool


def known(pool: BlockPool, contents: str) -> list[int]:
    """Takes blocks for `contents` and tells the pool what they hold."""
    blocks = pool.take(len(contents))
    for block, content in zip(blocks, contents, strict=True):
        pool.know(block, content)
    return blocks


def test_without_a_cache_blocks_are_only_counted() -> None:
    pool = BlockPool(5, caching=False)
    taken = pool.take(3)
    assert (len(taken), pool.free) == (3, 2)
    pool.release(taken)
    assert pool.free == 5


def test_a_match_is_the_longest_known_run_from_the_beginning() -> None:
    pool = BlockPool(5, caching=True)
    blocks = known(pool, "abc")
    assert pool.matched("abc", 3) == blocks
    assert pool.matched("abx", 3) == blocks[:2]
    assert pool.matched("xbc", 3) == []
    assert pool.matched("abc", 1) == blocks[:1]
    assert pool.matched("abcd", 9) == blocks
    assert pool.free == 2


def test_the_last_block_of_the_longest_free_sequence_is_forgotten_first() -> None:
    pool = BlockPool(5, caching=True)
    first, second = known(pool, "ab"), known(pool, "xy")
    pool.release(first)
    pool.release(second)
    assert pool.free == 5
    gone = []
    for _ in range(5):
        pool.take(1)
        gone.append([content for content in "abxy" if not pool.matched(content, 1)])
    assert gone == [[], ["b"], ["a", "b"], ["a", "b", "y"], ["a", "b", "x", "y"]]


def test_blocks_without_known_content_are_taken_before_known_ones() -> None:
    pool = BlockPool(3, caching=True)
    kept = known(pool, "a")
    loose = pool.take(2)
    pool.release(kept)
    pool.release(loose)
    assert sorted(pool.take(2)) == sorted(loose)
    assert pool.matched("a", 1) == kept


def test_a_match_moves_a_free_block_to_the_end_of_the_queue() -> None:
    pool = BlockPool(2, caching=True)
    first, second = known(pool, "a"), known(pool, "b")
    pool.release(first)
    pool.release(second)
    assert pool.unheld(first) == 1
    pool.share(first)
    assert (pool.unheld(first), pool.free) == (0, 1)
    pool.release(first)
    pool.take(1)
    assert pool.matched("a", 1) == first
    assert pool.matched("b", 1) == []


def test_a_shared_block_is_free_when_the_last_holder_lets_go() -> None:
    pool = BlockPool(1, caching=True)
    blocks = known(pool, "a")
    pool.share(blocks)
    pool.release(blocks)
    assert pool.free == 0
    pool.release(blocks)
    assert pool.free == 1


def test_of_two_blocks_with_one_content_the_second_serves_when_the_first_is_taken() -> None:
    pool = BlockPool(2, caching=True)
    first, second = known(pool, "a"), known(pool, "a")
    assert pool.matched("a", 1) == first
    pool.release(first)
    pool.release(second)
    pool.take(1)
    assert pool.matched("a", 1) == second
    pool.take(1)
    assert pool.matched("a", 1) == []


def test_of_two_blocks_with_one_content_the_first_stays_when_the_second_is_taken() -> None:
    pool = BlockPool(2, caching=True)
    first, second = known(pool, "a"), known(pool, "a")
    pool.release(second)
    pool.take(1)
    assert pool.matched("a", 1) == first
    pool.know(first[0], "a")
    pool.release(first)
    pool.take(1)
    assert pool.matched("a", 1) == []


def moved(pool: BlockPool, move: tuple[str, int, str], held: list[list[int]], told: dict[int, str]) -> None:
    """One move: take and tell, share what is found, or release. `told` is what each block was last told to hold."""
    what, number, contents = move
    if what == "take" and number <= pool.free:
        held.append(pool.take(number))
        for block in held[-1]:
            told.pop(block, None)
        for block, content in zip(held[-1], contents, strict=False):
            told[block] = content
            pool.know(block, content)
    elif what == "share":
        held.append(pool.matched(contents, number))
        assert [told[block] for block in held[-1]] == list(contents[: len(held[-1])])
        pool.share(held[-1])
    elif held:
        pool.release(held.pop(number % len(held)))


MOVES = st.tuples(st.sampled_from(["take", "share", "release"]), st.integers(0, 3), st.permutations("abc").map("".join))


@given(st.lists(MOVES, max_size=60))
def test_every_block_is_free_or_held_and_a_match_holds_what_is_asked(moves: list[tuple[str, int, str]]) -> None:
    pool = BlockPool(8, caching=True)
    held: list[list[int]] = []
    told: dict[int, str] = {}
    for move in moves:
        moved(pool, move, held, told)
        assert pool.free == 8 - len({block for blocks in held for block in blocks})
    for blocks in held:
        pool.release(blocks)
    assert pool.free == 8
    assert len(set(pool.take(8))) == 8

import pytest
from hypothesis import given, strategies as st

from loadgen.drive.words import WORDS
from loadgen.emulator.text import FIRST_WORD, Answer, Tokenizer, chained
from loadgen.errors import UserError

SIZES = st.sampled_from([64, 75, 76, 2048, 5625, 5626, 128_256])


@given(SIZES, st.data())
def test_ids_become_words_and_come_back(size, data):
    tokenizer = Tokenizer(size)
    ids = data.draw(st.lists(st.integers(FIRST_WORD, size - 1), max_size=40))
    text = tokenizer.decode(ids)
    assert tokenizer.encode(text) == ids
    assert text.replace(" ", "").isascii()
    assert all(word.isalpha() for word in text.split())


@given(SIZES, st.text(max_size=200))
def test_any_text_has_ids_of_the_vocabulary(size, text):
    tokenizer = Tokenizer(size)
    ids = tokenizer.encode(text)
    assert tokenizer.known(ids) is None
    assert all(token >= FIRST_WORD for token in ids)
    assert tokenizer.encode(text + " ") == ids


def test_a_common_word_is_one_token_wherever_it_stands():
    tokenizer = Tokenizer(2048)
    assert [len(tokenizer.encode(word)) for word in WORDS] == [1] * len(WORDS)
    assert len(tokenizer.encode(" ".join(WORDS))) == len(WORDS)
    assert len(tokenizer.encode("a" * 33)) == 3
    assert len(tokenizer.encode("well, then?")) == 4


def test_a_chat_adds_four_tokens_to_one_message():
    tokenizer = Tokenizer(2048)
    assert len(tokenizer.chat([("user", "hello there")])) == 2 + 4
    assert len(tokenizer.chat([("system", "be kind"), ("user", "hello there")])) == 4 + 6
    assert tokenizer.chat([("user", "x")]) != tokenizer.chat([("tool", "x")])


def test_a_vocabulary_too_small_for_words():
    with pytest.raises(UserError, match=r"model\.vocabulary: 63: should be at least 64"):
        Tokenizer(63)


@given(st.lists(st.integers(0, 2047), min_size=1, max_size=30))
def test_an_answer_is_a_function_of_its_prompt(prompt):
    answer, again = Answer(prompt, vocabulary=2048), Answer(tuple(prompt), vocabulary=2048)
    tokens = [answer.token(number) for number in range(20)]
    assert tokens == [again.token(number) for number in range(20)]
    assert all(FIRST_WORD <= token < 2048 for token in tokens)
    assert 16 <= answer.tokens_to_end < 1040
    assert tokens != [Answer(prompt, vocabulary=2048, flavour=b"int4").token(number) for number in range(20)]
    assert tokens != [Answer([*prompt, 5], vocabulary=2048).token(number) for number in range(20)]


def test_answers_use_the_whole_vocabulary():
    answer = Answer([1, 2, 3], vocabulary=128)
    assert {answer.token(number) for number in range(3000)} == set(range(FIRST_WORD, 128))


@given(st.lists(st.integers(0, 99), max_size=50), st.integers(1, 8), st.data())
def test_a_block_is_known_by_everything_up_to_its_end(tokens, size, data):
    blocks = chained(tokens, block_tokens=size)
    assert len(blocks) == len(tokens) // size
    assert chained([*tokens, 7], block_tokens=size)[: len(blocks)] == blocks
    if blocks:
        assert not set(blocks) & set(chained(tokens, block_tokens=size, salt="x"))
        at = data.draw(st.integers(0, len(blocks) * size - 1))
        other = chained([*tokens[:at], 100, *tokens[at + 1 :]], block_tokens=size)
        assert [one == two for one, two in zip(blocks, other, strict=True)] == [
            number < at // size for number in range(len(blocks))
        ]

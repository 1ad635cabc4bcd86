"""A toy tokenizer and the text that the emulated model makes: both are pure functions, nothing is downloaded.

Ids below FIRST_WORD are special. Every other id has a word of its own, made of syllables ("bakedo"), so that ids and
generated text turn into each other exactly. Any other word gets an id by its checksum, shared with words of the same
checksum: counts are exact, content is not kept. White space parts words and counts nothing.
"""

import re
import zlib
from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from loadgen.errors import UserError

FIRST_WORD = 16
BEGIN, END, NAMELESS = 0, 1, 2
ROLES = {"system": 3, "developer": 3, "user": 4, "assistant": 5, "tool": 6}
FEWEST_IDS = 64

_PIECES = re.compile(r"\w{1,16}|[^\w\s]")
_SYLLABLES = tuple(consonant + vowel for consonant in "bdfgjklmnprstvz" for vowel in "aeiou")
_VALUES = {syllable: value for value, syllable in enumerate(_SYLLABLES)}
_MASK = (1 << 64) - 1


class Tokenizer:
    """Text to token ids below `vocabulary` and back. One token: a word of up to 16 letters or digits, or one sign.

    Raises UserError for a vocabulary that is too small.
    """

    def __init__(self, vocabulary: int) -> None:
        if vocabulary < FEWEST_IDS:
            raise UserError(f"model.vocabulary: {vocabulary}: should be at least {FEWEST_IDS} for the emulator's front")
        self.vocabulary = vocabulary
        self._length = next(n for n in range(1, 9) if len(_SYLLABLES) ** n >= vocabulary)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, nothing put before or after it."""
        return [self._id(piece) for piece in _PIECES.findall(text)]

    def chat(self, messages: Iterable[tuple[str, str]]) -> list[int]:
        """The ids of (role, content) messages and of the turn that follows: 4 tokens more than one message's words."""
        ids = [BEGIN]
        for role, content in messages:
            ids += (ROLES.get(role, NAMELESS), *self.encode(content), END)
        return [*ids, ROLES["assistant"]]

    def word(self, token: int) -> str:
        """The word of an id; special ones look like "<3>"."""
        if token < FIRST_WORD:
            return f"<{token}>"
        word = ""
        for _ in range(self._length):
            token, value = divmod(token, len(_SYLLABLES))
            word = _SYLLABLES[value] + word
        return word

    def decode(self, tokens: Iterable[int]) -> str:
        """The words of the ids, a space before each but the first."""
        return " ".join(map(self.word, tokens))

    def known(self, tokens: Sequence[int]) -> int | None:
        """The first id that is out of the vocabulary; None if all are in it."""
        return next((token for token in tokens if not 0 <= token < self.vocabulary), None)

    def _id(self, piece: str) -> int:
        if len(piece) == 2 * self._length:
            token = 0
            for at in range(0, len(piece), 2):
                value = _VALUES.get(piece[at : at + 2])
                if value is None:
                    break
                token = token * len(_SYLLABLES) + value
            else:
                if FIRST_WORD <= token < self.vocabulary:
                    return token
        return FIRST_WORD + zlib.crc32(piece.encode("utf-8", "surrogatepass")) % (self.vocabulary - FIRST_WORD)


class Answer:
    """What the model says to a prompt: token n is a hash of (prompt, n), so every arm says the same.

    `flavour` makes it another answer: for a format that changes what the model says.
    """

    def __init__(self, prompt: Sequence[int], *, vocabulary: int, flavour: bytes = b"") -> None:
        digest = blake2b(array("Q", prompt).tobytes(), digest_size=8, key=flavour).digest()
        self._seed = int.from_bytes(digest, "little")
        self._words = vocabulary - FIRST_WORD

    def token(self, number: int) -> int:
        """The id of output token `number`, from 0."""
        return FIRST_WORD + _mixed(self._seed + (number + 1) * 0x9E3779B97F4A7C15) % self._words

    @property
    def tokens_to_end(self) -> int:
        """After how many tokens the model would end by itself: 16 to 1,039, evenly spread over prompts."""
        return 16 + _mixed(self._seed) % 1024


def _mixed(number: int) -> int:
    """The finalizer of SplitMix64 (Steele, Lea, Flood 2014): 64 well-mixed bits."""
    number &= _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


def chained(tokens: Sequence[int], *, block_tokens: int, salt: str = "") -> list[bytes]:
    """One identity per full block, each standing for `salt` and all tokens up to the block's end.

    As vLLM hashes blocks (vllm/v1/core/kv_cache_utils.py, hash_block_tokens), with a salt in the first.
    """
    chain = blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    found = []
    for at in range(0, len(tokens) - block_tokens + 1, block_tokens):
        block = array("Q", tokens[at : at + block_tokens]).tobytes()
        chain = blake2b(block, digest_size=16, key=chain).digest()
        found.append(chain)
    return found

"""YAML files that people write: the one door of PyYAML, which gives plain data and the line of every key, or UserError.

Two sets of rules. `read`'s own are YAML 1.2's plain ones in place of 1.1's surprises: in 1.1 `on`, `no` and `y` are
booleans, `1:30` is ninety, `010` is eight and `1e3` is text; here booleans are true and false, numbers are decimal
(1e3 is a number), all else is text. `NATIVE` keeps 1.1's, for files that an engine reads as well. With both, a repeated
key is refused (PyYAML drops its first value silently), and so are dates, binary data, sets and other tags, numbers of
hundreds of digits, text that no command line or file can hold, and files that are too long, too deep, or become too
much through their aliases.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from loadgen.errors import UserError

MOST_BYTES = 256 * 1024
MOST_DEPTH = 50  # of brackets
MOST_VALUES = 20_000  # with aliases written out: a few lines of them can stand for billions
HUGE = 10**300  # a whole number beyond it is no float either

_CORE = ("null", "bool", "int", "float", "str", "seq", "map", "merge")
_TAG = "tag:yaml.org,2002:"
PLAIN = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|nan)", "-+.0123456789"),
    ("merge", r"<<", "<"),
)


class _Native(yaml.SafeLoader):
    """YAML 1.1 as PyYAML knows it, for plain data alone: what looks like a date stays text."""

    yaml_constructors = {  # noqa: RUF012 (PyYAML's own form)
        None: yaml.SafeLoader.yaml_constructors[None],
        **{_TAG + kind: yaml.SafeLoader.yaml_constructors[_TAG + kind] for kind in _CORE if kind != "merge"},
    }
    yaml_implicit_resolvers = {  # noqa: RUF012
        start: [(tag, pattern) for tag, pattern in known if tag.removeprefix(_TAG) in _CORE]
        for start, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def fetch_flow_collection_start(self, TokenClass: type[yaml.Token]) -> None:
        if self.flow_level >= MOST_DEPTH:  # the scanner's time grows with the square of the depth
            raise yaml.scanner.ScannerError(None, None, "nested too deeply", self.get_mark())
        super().fetch_flow_collection_start(TokenClass)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():  # a tag can call anything a mapping
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {_short(key)!r} given twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
            if isinstance(value, int) and abs(value) > HUGE:
                raise ValueError("hundreds of digits")
            if isinstance(value, str) and 0 in value.encode():
                raise ValueError("a NUL; or no text at all, as half of a surrogate pair is")
        except (ValueError, LookupError, ArithmeticError) as error:  # a tag that its value does not fit
            kind = node.tag.rpartition(":")[2]
            raise yaml.constructor.ConstructorError(
                None, None, f"{_short(node)!r} is no {kind}", node.start_mark
            ) from error
        return value


class _Plain(_Native):
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def construct_decimal(self, node: yaml.ScalarNode) -> int:
        return int(self.construct_scalar(node))


for _kind, _pattern, _starts in PLAIN:
    _Plain.add_implicit_resolver(_TAG + _kind, re.compile(f"^(?:{_pattern})$"), list(_starts))
_Plain.add_constructor(_TAG + "int", _Plain.construct_decimal)

Rules = type[_Native]
NATIVE: Rules = _Native


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML document: its plain data, and the node tree that knows the lines."""

    data: Any
    root: yaml.Node | None

    def line(self, place: Sequence[str | int]) -> int | None:
        """The line (from 1) of the key or item at `place`, or of its nearest parent that the file has."""
        node, line = self.root, None
        for part in place:
            step = _step(node, part)
            if step is None:
                break
            line, node = step
        return line


def load(path: Path, rules: Rules = _Plain) -> Document:
    """The one document in the file `path`. Raises UserError."""
    return read(text_of(path), path, rules)


def text_of(path: Path) -> str:
    """What stands in the file `path`, cut off where `read` would refuse its length. Raises UserError."""
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES + 1).decode("utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; should be a file of YAML") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: cannot be read: not UTF-8 text; should be a file of YAML") from error


def read(text: str, path: Path, rules: Rules = _Plain) -> Document:
    """The one document in `text`; `path` names it in complaints. Raises UserError: file, line, what is wrong."""
    if len(text.encode("utf-8", "surrogatepass")) > MOST_BYTES:
        raise UserError(f"{path}: too long; should be a file of at most {MOST_BYTES // 1024} KiB")
    try:
        return _read(text, rules)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        column = f" (column {mark.column + 1})" if mark else ""
        told = " ".join(part for part in (error.context, error.problem) if part)
        raise UserError(f"{where}: not YAML: {told}{column}") from error
    except RecursionError as error:
        raise UserError(f"{path}: nested too deeply; should be a mapping of keys") from error
    except (
        yaml.YAMLError,
        ValueError,
        OverflowError,
    ) as error:  # the last two: an escape beyond Unicode, %YAML 1.999...
        raise UserError(f"{path}: not YAML: {' '.join(str(error).split())}") from error


def _read(text: str, rules: Rules) -> Document:
    loader = rules(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return Document(None, None)
        if _values(root, {}) > MOST_VALUES:
            raise yaml.constructor.ConstructorError(
                None, None, f"more than {MOST_VALUES:,} values, its aliases written out", root.start_mark
            )
        return Document(loader.construct_document(root), root)
    finally:
        loader.dispose()


def _values(node: yaml.Node, known: dict[yaml.Node, int | None]) -> int:
    """The number of nodes at and below `node`, with every alias written out. Each node is looked at once."""
    if node in known:
        count = known[node]
        if count is None:
            raise yaml.constructor.ConstructorError(None, None, "an alias within what it stands for", node.start_mark)
        return count
    known[node] = None
    below: list[yaml.Node] = []
    if isinstance(node, yaml.SequenceNode):
        below = node.value
    elif isinstance(node, yaml.MappingNode):
        below = [part for pair in node.value for part in pair]
    known[node] = count = 1 + sum([_values(part, known) for part in below])
    return count


def _short(node: yaml.Node) -> str:
    return str(node.value)[:20] if isinstance(node, yaml.ScalarNode) else str(node.tag)


def _step(node: yaml.Node | None, part: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part].start_mark.line + 1, node.value[part]
    return None

"""YAML as people mean it: 1.2's plain rules in place of 1.1's surprises, with the line of every key.

In YAML 1.1 `on`, `no` and `y` are booleans, `1:30` is ninety, `010` is eight, `1e3` is text and a key given twice loses
its first value silently. Here booleans are true and false, numbers are decimal (1e3 is a number), all else is text, and
a repeated key is refused.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

PLAIN = (
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:int", r"[-+]?[0-9]+", "-+0123456789"),
    (
        "tag:yaml.org,2002:float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|nan)",
        "-+.0123456789",
    ),
    ("tag:yaml.org,2002:merge", r"<<", "<"),
)


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (PyYAML's own form)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key.value!r} given twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError) as error:  # a tag that its value does not fit, an int of thousands of digits
            kind, shown = node.tag.rpartition(":")[2], str(node.value)[:20]
            raise yaml.constructor.ConstructorError(None, None, f"{shown!r} is no {kind}", node.start_mark) from error

    def construct_decimal(self, node: yaml.ScalarNode) -> int:
        return int(self.construct_scalar(node))


for _tag, _pattern, _starts in PLAIN:
    _Loader.add_implicit_resolver(_tag, re.compile(f"^(?:{_pattern})$"), list(_starts))
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_decimal)


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


def read(text: str) -> Document:
    """The one document in `text`. Raises yaml.YAMLError."""
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        data = None if root is None else loader.construct_document(root)
    finally:
        loader.dispose()
    return Document(data, root)


def _step(node: yaml.Node | None, part: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part].start_mark.line + 1, node.value[part]
    return None

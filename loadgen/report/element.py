"""HTML as a tree, so that everything a user or a server named is escaped when it is written, with no way round it."""

from xml.etree.ElementTree import Element, tostring

from loadgen.report.words import visible

Content = Element | str | None


def element(tag: str, *children: Content, **attributes: str) -> Element:
    """An element with its text and children in order; None children are left out.

    Attribute names: `class_` is written "class", `aria_label` "aria-label".
    """
    made = Element(tag, {name.strip("_").replace("_", "-"): visible(value) for name, value in attributes.items()})
    last: Element | None = None
    for child in children:
        if child is None:
            continue
        if isinstance(child, Element):
            made.append(child)
            last = child
        elif last is None:
            made.text = (made.text or "") + visible(child)
        else:
            last.tail = (last.tail or "") + visible(child)
    return made


def raw(tag: str, content: str, **attributes: str) -> Element:
    """A `script` or `style`, whose content HTML does not escape. The caller sees to it that it cannot end early."""
    made = element(tag, **attributes)
    made.text = content
    return made


def script_safe(json: str) -> str:
    """JSON that may stand inside a `script`: "<" only occurs within its strings, where \\u003c says the same."""
    return json.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def document(root: Element) -> str:
    """The page's source."""
    return "<!doctype html>\n" + tostring(root, encoding="unicode", method="html") + "\n"

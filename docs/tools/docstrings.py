"""The project's docstrings in the form that the API pages of the site expect.

A parameter is written `name : what it is`, its type being in the code; numpydoc has the type after
the colon and the description in an indented line below. A module, class or function is named in
full between backticks; on the site it is a link.
"""

import ast
import re
from typing import Any

import griffe

_SECTION = re.compile(r"^(?:Parameters|Attributes)$")
_OTHER = re.compile(r"^[A-Z][A-Za-z ]+$")
_ITEM = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*) : (.+)$")
_NAME = re.compile(r"`(pipeline(?:\.\w+)+)`")
_ANGLE = re.compile(r"<(?=\w)(?=[^`]*(?:`[^`]*`[^`]*)*$)")


def numpydoc(text: str) -> str:
    """Return the docstring with the descriptions of parameters and attributes below their names."""
    lines = text.splitlines()
    described: list[str] = []
    inside = False
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if following.startswith("---") and (_SECTION.match(line) or _OTHER.match(line)):
            inside = bool(_SECTION.match(line))
        item = _ITEM.match(line) if inside else None
        described += [item[1], f"    {item[2]}"] if item else [line]
    return "\n".join(described)


def linked(text: str) -> str:
    """Return the docstring with links for full names, and other angle brackets as themselves."""
    lines = [line if ">>>" in line else _ANGLE.sub("&lt;", line) for line in text.splitlines()]
    return _NAME.sub(
        r'<autoref identifier="\1" optional><code>\1</code></autoref>', "\n".join(lines)
    )


class Docstrings(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of an object that griffe has read."""
        if obj.docstring is not None:
            obj.docstring.value = linked(numpydoc(obj.docstring.value))

    def on_attribute_instance(
        self, *, node: ast.AST | griffe.ObjectNode, attr: griffe.Attribute, **kwargs: Any
    ) -> None:
        """Describe a field of an option object by its help."""
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Call):
            for keyword in node.value.keywords:
                if keyword.arg == "help" and isinstance(keyword.value, ast.Constant):
                    attr.docstring = griffe.Docstring(str(keyword.value.value), parent=attr)

"""Text from data made safe to show: control characters and reversals of direction are spelled out.

Escaping for HTML and XML is the templates' and `html.escape`'s; this is for what no escaping can
express (most control characters do not exist in HTML or XML) and for what would make a line read
otherwise than it stands.
"""

import re

# Control characters, line and paragraph separators, marks that turn the direction of writing,
# half surrogate pairs, and the two numbers that are no characters of XML.
_SPELLED_OUT = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def shown(text: str) -> str:
    r"""Return `text` with such characters as `\x1b` or `\u202e`; all else stays as it is."""
    return _SPELLED_OUT.sub(lambda found: _escape(ord(found[0])), text)


def _escape(number: int) -> str:
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"

"""Values of files: the type that is asked for, or one error with the path of the wrong value."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest

from pipeline.store.schema import (
    Natural,
    Positive,
    SchemaError,
    Sha256,
    convert,
    convert_fields,
    decode,
    decode_lines,
)


@dataclass(frozen=True)
class Part:
    rows: Positive
    sha256: Sha256 = "0" * 64


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]
    named: dict[str, dict[str, Part]]
    failed: Natural = 0
    kind: Literal["a", "b"] | None = None
    notes: Any = None


GOOD = {"parts": [{"rows": 1}], "named": {"a": {"b": {"rows": 2}, "c": {"rows": 3}}}}


def test_values_are_those_of_the_type() -> None:
    made = convert(GOOD, Whole)
    assert made == Whole((Part(1),), {"a": {"b": Part(2), "c": Part(3)}})
    assert decode(
        b'{"parts": [], "named": {}, "notes": [1, 1.5, "\\ud83d\\ude00"]}', Whole
    ) == Whole((), {}, notes=[1, 1.5, "\U0001f600"])
    assert list(decode_lines([b'{"rows": 1, "unknown": 0}\n'], Part)) == [Part(1)]
    assert convert_fields({"rows": 1, "kind": "x"}, Part, ["sha256"], kind=str) == {
        "rows": 1,
        "kind": "x",
    }


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"parts": [{"rows": 1}, {"rows": 0}]}, r"^parts\[1\]\.rows: .*>= 1, found 0$"),
        ({"parts": [{"rows": True}]}, r"^parts\[0\]\.rows: .*bool., found True$"),
        ({"parts": [{"rows": 1, "sha256": "0" * 63}]}, r"^parts\[0\]\.sha256: .*, found '000"),
        ({"parts": [{"rows": 1, "sha256": "0" * 64 + "\n"}]}, r"^parts\[0\]\.sha256: "),
        ({"parts": [{}]}, r"^parts\[0\]: .*missing required field `rows`$"),
        ({"parts": [{"rows": 1, "row": 1}]}, r"^parts\[0\]: .*unknown field `row`$"),
        ({"named": {"a": {"b": {"rows": 2}, "c": {"rows": "3"}}}}, r"^named\.a\.c\.rows: .*'3'$"),
        ({"named": {"a": {"b": {"rows": 2}}, "d": []}}, r"^named\.d: Expected `object`"),
        ({"named": {"a": {"b": {"rows": 2, "x": 1}}}}, r"^named\.a\.b: .*unknown field `x`$"),
        ({"named": {3: {}}}, r"^named: Expected `str`, got `int`"),
        ({"failed": -1}, r"^failed: .*found -1$"),
        ({"failed": 1.0}, r"^failed: .*found 1.0$"),
        ({"kind": "c"}, r"^kind: Expected one of 'a', 'b', found 'c'$"),
        ({"surplus": 1}, r"^Object contains unknown field `surplus`$"),
    ],
)
def test_the_wrong_value_is_named_by_its_path(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        convert(GOOD | wrong, Whole)


@pytest.mark.parametrize(
    "text",
    [
        "", "[1", "[" * 10**5 + "]" * 10**5, b"\xff", "NaN", "[Infinity]", "1e400",
        "9" * 5000, r'["\ud83d"]', r'{"\uDE00": 1}', '["\udc80"]', b'"\xed\xa0\x80"',
    ],
)  # fmt: skip
def test_what_is_no_json_is_one_error(text: str | bytes) -> None:
    with pytest.raises(SchemaError, match=r"JSON is malformed|nested too deeply"):
        decode(text, Any)
    with pytest.raises(SchemaError, match=r"^line 2: "):
        list(
            decode_lines(
                [b"1", text if isinstance(text, bytes) else text.encode(errors="surrogatepass")],
                int,
            )
        )


def test_malformed_json_is_found_by_line_and_column() -> None:
    with pytest.raises(SchemaError, match=r"at line 3, column 6$"):
        decode('{"a": "é",\n\n "é":}', Any)
    with pytest.raises(SchemaError, match=r"^line 2: rows: Expected"):
        list(decode_lines([b'{"rows": 1}', b'{"rows": null}'], Part))


@pytest.mark.parametrize("value", [np.float32(1), np.array([1, 2]), 3, None])
def test_what_is_not_a_text_is_refused(value: Any) -> None:
    with pytest.raises(SchemaError, match="expected a JSON text, found"):
        decode(value, dict[str, Any])

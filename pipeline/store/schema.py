"""Schema validation: values of files against types; an error names the path of the wrong value.

Types are annotations of dataclasses, as msgspec interprets them: no coercion except whole numbers
to float and JSON lists to tuples. A dataclass, for this project's files, rejects unknown fields;
`msgspec.Struct`, for other people's files, ignores them.
"""

import json
import re
import reprlib
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

T = TypeVar("T")

Natural = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Sha256 = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]

Keys = tuple[str | int, ...]

_MARK = BOM_UTF8.decode()

# ".name", "[3]", and "[...]" for any key of a mapping.
_STEP = re.compile(r"\.([^.\[`]+)|\[(\d+|\.\.\.)\]")
_BYTE = re.compile(r"\(byte (\d+)\)")


class SchemaError(ValueError):
    """A text is not JSON, or one of its values does not match the schema.

    `path` has the keys and indices from the root to the wrong value.
    """

    def __init__(self, what: str, path: Keys = ()) -> None:
        steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
        super().__init__(f"{steps.removeprefix('.')}: {what}" if path else what)


def decode(text: str | bytes, kind: type[T]) -> T:
    """Parse a JSON text as a `kind`; NaN, numbers beyond floats and lone surrogates are invalid."""
    if not isinstance(text, str | bytes):  # such as a number in an HDF5 attribute
        raise SchemaError(f"expected a JSON text, found {reprlib.repr(text)}")
    text = text.removeprefix(_MARK) if isinstance(text, str) else text.removeprefix(BOM_UTF8)
    try:
        value = msgspec.json.decode(text)
    except RecursionError as error:
        raise SchemaError("this JSON is nested too deeply") from error
    except ValueError as error:
        what, *_ = _BYTE.sub(lambda match: _place(text, int(match[1])), str(error)).split(" - at ")
        raise SchemaError(
            f"JSON is malformed: {what.removeprefix('JSON is malformed: ')}"
        ) from error
    return value if kind is Any else convert(value, kind)


def decode_given(text: str | bytes, kind: type[T]) -> T:
    """Parse a user's JSON, in which no object may have a key twice; parsers keep the last one."""
    value: Any = decode(text, Any)
    text = text if isinstance(text, str) else text.decode()
    # A colon for each key: a flat object without repeats, as most lines of JSON are.
    if not isinstance(value, dict) or text.count(":") != len(value):
        json.loads(text.removeprefix(_MARK), object_pairs_hook=_require_once)
    return value if kind is Any else convert(value, kind)


def _require_once(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) != len(pairs):
        (key, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise SchemaError(f"an object has the key {key!r} more than once")


def decode_format(text: str | bytes, kind: type[T], name: str, *versions: int) -> T:
    """Parse a JSON object of a format and version: those two keys, and the fields of `kind`.

    With several versions, `format_version` is a field of `kind`, too.
    """
    values = decode(text, dict[str, Any])
    form, version = values.pop("format", None), values.pop("format_version", None)
    if form != name or version not in versions:
        raise SchemaError(
            f"format {reprlib.repr(form)} version {reprlib.repr(version)}; this software "
            f"reads {name!r} version {' or '.join(map(str, versions))}"
        )
    if len(versions) > 1:
        values["format_version"] = version
    return convert(values, kind)


def decode_lines(lines: Iterable[bytes], kind: type[T]) -> Iterator[T]:
    """Yield the parsed value of each line of JSON; unknown fields are ignored."""
    decoder = msgspec.json.Decoder(kind)
    for number, line in enumerate(lines, start=1):
        try:
            yield decoder.decode(line if number > 1 else line.removeprefix(BOM_UTF8))
        except (ValueError, RecursionError) as error:
            try:
                decode(line, kind)
            except SchemaError as named:
                raise SchemaError(f"line {number}: {named}") from error
            raise SchemaError(f"line {number}: {error}") from error


def convert(value: Any, kind: type[T]) -> T:
    """Convert JSON or YAML values to a `kind`: a dataclass, or another type of msgspec."""
    try:
        converted: T = msgspec.convert(value, kind)
    except RecursionError as error:
        raise SchemaError("the values are nested too deeply") from error
    except msgspec.ValidationError as error:
        raise _named(value, kind, error) from error
    # msgspec ignores unknown fields of dataclasses.
    _require_known(value, converted, ())
    return converted


def convert_fields(
    value: Any, kind: type[Any], without: Collection[str] = (), /, **others: Any
) -> dict[str, Any]:
    """Convert JSON values to the fields of a dataclass, without fields that files do not store.

    `others` are the types of additional required fields of the file.
    """
    types = get_type_hints(kind, include_extras=True)
    expected: list[Any] = [
        (field.name, types[field.name])
        if field.default is MISSING
        else (field.name, types[field.name], field.default)
        for field in fields(kind)
        if field.name not in without
    ]
    in_file = msgspec.defstruct(
        kind.__name__, [*others.items(), *expected], kw_only=True, forbid_unknown_fields=True
    )
    return msgspec.structs.asdict(convert(value, in_file))


def _place(text: str | bytes, byte: int) -> str:
    data = text.encode() if isinstance(text, str) else text
    lines = data[:byte].decode(errors="replace").split("\n")
    return f"at line {len(lines)}, column {len(lines[-1]) + 1}"


def _named(value: Any, kind: Any, error: msgspec.ValidationError) -> SchemaError:
    """Return an error with the wrong value and its full path; msgspec omits keys."""
    what, _, path = str(error).partition(" - at ")
    steps = [name or index for name, index in _STEP.findall(path)]
    try:
        keys = _keys(value, steps, lambda changed: _fails(changed, kind, str(error)))
        for key in keys:
            value = value[key]
    except (LookupError, StopIteration, TypeError):
        return SchemaError(str(error))
    if choices := get_args(_type_at(kind, keys)) if what.startswith("Invalid enum") else ():
        what = f"Expected one of {', '.join(map(repr, choices))}"
    if not isinstance(value, dict | list):
        what += f", found {reprlib.repr(value)}"
    return SchemaError(what, keys)


def _type_at(kind: Any, keys: Keys) -> Any:
    """Return the type at a path within a type; for an optional type, the type itself."""
    if get_origin(kind) in (Union, UnionType):
        kind = next(part for part in get_args(kind) if part is not NoneType)
    if not keys:
        return kind
    of_items = [part for part in get_args(kind) if part is not ...]
    inner = of_items[-1] if of_items else get_type_hints(kind)[str(keys[0])]
    return _type_at(inner, keys[1:])


def _keys(value: Any, steps: list[str], fails: Callable[[Any], bool]) -> Keys:
    """Return the keys of the steps of a path from `value`; `_STEP` has their form."""
    # msgspec writes "[...]" for any key of a mapping. The wrong entry is the one that alone still
    # has the same error: `fails` returns it for the whole with another value in place of `value`.
    if not steps:
        return ()
    step, *rest = steps
    key: str | int = step
    if step == "...":
        key = next(name for name in value if fails({name: value[name]}))
    elif isinstance(value, list):
        key = int(step)

    def fails_with(changed: Any) -> bool:
        if isinstance(value, list):
            return fails([changed if n == key else item for n, item in enumerate(value)])
        return fails({key: changed} if step == "..." else {**value, key: changed})

    return (key, *_keys(value[key], rest, fails_with))


def _fails(value: Any, kind: Any, text: str) -> bool:
    with suppress(RecursionError):
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            return str(error) == text
    return False


def _require_known(value: Any, converted: Any, path: Keys) -> None:
    """Raise unless all keys of objects are fields of the dataclasses converted from them."""
    if is_dataclass(converted):
        names = {field.name for field in fields(converted)}
        if unknown := [key for key in value if key not in names]:
            raise SchemaError(f"Object contains unknown field `{unknown[0]}`", path)
        for key, item in value.items():
            _require_known(item, getattr(converted, key), (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            if isinstance(item, dict | list):
                _require_known(item, converted[number], (*path, number))
    elif isinstance(value, dict) and isinstance(converted, dict):
        for key, item in value.items():
            _require_known(item, converted[key], (*path, key))

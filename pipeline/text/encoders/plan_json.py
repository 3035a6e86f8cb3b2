"""Options of encoders as the plan in `encoder.json`.

A plan has a list of parts, each with the keys of `_PART` and those of its own that are not null,
and the values that all parts share. A concatenation is more than one part, and principal components
are the shared value `pca`.
"""

from dataclasses import Field, dataclass, fields
from typing import Any

from pipeline.store.schema import convert
from pipeline.text import EncoderError
from pipeline.text.encoders.options import EncoderOptions
from pipeline.text.encoders.registry import KINDS, combined, find_encoder

# Keys of every part, null for encoders without that option.
_PART: dict[str, Any] = {
    "policy": None, "vocabulary": None, "meaning": None, "mixtures": [], "layout": None,
    "max_length": None,
}  # fmt: skip


@dataclass(frozen=True)
class _Plan:
    parts: list[dict[str, Any]]
    vectors: str | None
    wordnet: str | None
    codebooks: dict[str, Any] | None
    pca: int | None


def plan_of(options: EncoderOptions) -> dict[str, Any]:
    """Return the plan of an encoder as JSON values."""
    shared: dict[str, Any] = {"vectors": None, "wordnet": None, "codebooks": None}
    parts = []
    for part in options.parts:
        own = {"encoder": part.recorded_name, "kind": _recorded(part.kind), **_PART}
        own |= {"plugin": plugin} if (plugin := KINDS.plugin(part.kind)) else {}
        for field, key in _keys(part):
            value = getattr(part, field.name)
            if value is None:
                continue
            if isinstance(key, str):
                own[key] = list(value) if isinstance(value, tuple) else value
            else:
                first, *rest = key
                shared[first] = {**(shared[first] or {}), rest[0]: value} if rest else value
        parts.append(own)
    return {"parts": parts, **shared, "pca": getattr(options, "pca", None)}


def options_of(value: Any) -> EncoderOptions:
    """Return the options of a plan, if they are consistent."""
    plan = convert(value, _Plan)
    parts = tuple(_part(part, plan) for part in plan.parts)
    if not parts:
        raise EncoderError("it has no parts")
    return combined(parts, plan.pca)


def _part(own: dict[str, Any], plan: _Plan) -> EncoderOptions:
    own = {key: item for key, item in own.items() if item not in (None, [])}
    kind, plugin = own.pop("kind", None), own.pop("plugin", "")
    if plugin:
        KINDS.get(kind, plugin)
    standard = find_encoder(str(own.pop("encoder", "")).replace("sequence", "token-ids"))
    if kind != _recorded(standard.kind):
        raise EncoderError(f"the encoder {standard.name!r} has another kind")
    if (installed := KINDS.plugin(standard.kind)) != plugin:
        raise EncoderError(
            f"the encoder {standard.name!r} was fitted by {plugin or 'this package'}, and is of "
            f"{installed or 'this package'} here; install the same version"
        )
    values: dict[str, Any] = {"name": standard.name, "kind": standard.kind}
    for field, key in _keys(standard):
        if isinstance(key, str):
            value = own.pop(key, None)
        else:
            first, *rest = key
            value = getattr(plan, first)
            value = value.get(rest[0]) if rest and value is not None else value
        if value is None and field.default is not None and not field.metadata["applies"]:
            name = key if isinstance(key, str) else key[0]
            raise EncoderError(f"the encoder {standard.name!r} needs `{name}`, null in its plan")
        values[field.name] = value
    if own:
        raise EncoderError(f"the encoder {standard.name!r} has another {min(own)}")
    return convert(values, type(standard)).settled()


def _keys(options: EncoderOptions) -> list[tuple["Field[Any]", str | tuple[str, ...]]]:
    """Return the fields that a plan has, with their keys."""
    own = [field for field in fields(options) if "key" in field.metadata]
    return [(field, field.metadata["key"] or field.name) for field in own]


def _recorded(kind: str) -> str:
    return kind.replace("token-ids", "sequence")

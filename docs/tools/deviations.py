"""Writes docs/lab/deviations.md: every preset with its source, our choices, deviations and sizes.

python docs/tools/deviations.py
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from pipeline.heads.base import settings_from
from pipeline.heads.experiments import Size, resolve_experiment
from pipeline.heads.head_types import CaptionFeatures, Finetuning, head_kind
from pipeline.heads.presets import PRESETS
from pipeline.language.model_types import LanguageSettings
from pipeline.language.presets import LANGUAGE_PRESETS, resolve_language_experiment

PAGE = Path(__file__).parents[1] / "lab" / "deviations.md"
VARIANT = 6
"""Most differences with which a preset is an entry of another one's list."""
SHORTER = 0.7
"""Longest table of differences from another preset, as a part of the whole one."""

_HEAD = """# Deviations from the papers

Where each preset (a published system with its values) leaves its paper: the source, our choices
where it is silent, our deviations, and the values at each size.

- An entry of a list states only the differences from the preset above the list, or from the one
  after "as".
- An empty cell or an unnamed size repeats the size before it.
- Settings that are not listed have the defaults of the head or model.
- Deviations that all presets of a head share are in the docstring of its module
  ([Heads](../heads.md)).

`python docs/tools/deviations.py` writes this page; a test compares it.
"""


@dataclass
class Description:
    """What the page states of a preset.

    Attributes
    ----------
    names : list of str. The preset's name, and those of presets with the same contents.
    of : str. Kind of preset, such as "Head `vse`".
    family : str. Presets of one family and kind are described by their differences.
    source : str. Where the values are published.
    choices : str. Our choices and deviations.
    values : dict. Name of a value to its text at each size.
    defaults : mapping. Texts of values that are not listed where all sizes have them.
    """

    names: list[str]
    of: str
    family: str
    source: str
    choices: str
    values: dict[str, tuple[str, ...]]
    defaults: Mapping[str, str]

    def differing(self, other: "Description") -> list[str]:
        """Return the names of the values that differ from those of another preset."""
        names = dict.fromkeys([*other.values, *self.values])
        return [name for name in names if self.values.get(name) != other.values.get(name)]

    def distance(self, other: "Description") -> int:
        """Return the number of differences from another preset."""
        texts = (self.source != other.source) + (self.choices != other.choices)
        return texts + len(self.differing(other))


def page() -> str:
    """Return the page; nearly equal presets share a section."""
    heads = _sections(map(_head_preset, PRESETS), get_args(Size))
    models = _sections(map(_language_preset, LANGUAGE_PRESETS), ("paper", "small"))
    return "\n".join([_HEAD, *heads, *models])


def _sections(presets: Iterable[Description], sizes: tuple[str, ...]) -> Iterator[str]:
    """Yield a section for each preset that is not nearly equal to one before."""
    sections: list[list[Description]] = []
    tables: list[str] = []
    for preset in presets:
        known = [(section, one) for section in sections for one in section]
        kind = (preset.of, preset.family)
        known = [(section, one) for section, one in known if (one.of, one.family) == kind]
        at = min(range(len(known)), key=lambda at: preset.distance(known[at][1]), default=None)
        section, nearest = ([], None) if at is None else known[at]
        if nearest is None or preset.distance(nearest) > VARIANT:
            sections.append([preset])
            tables.append(_table(preset, nearest, sizes))
        elif preset.distance(nearest):
            section.append(preset)
        else:
            nearest.names += preset.names
    for table, section in zip(tables, sections, strict=True):
        entries = [_entry(section[: at + 1], sizes) for at in range(1, len(section))]
        names = ", ".join(section[0].names)
        yield "\n".join([f"## {names}", "", table, *(["", *entries] if entries else [])]) + "\n"


def _table(preset: Description, nearest: Description | None, sizes: tuple[str, ...]) -> str:
    """Return source, choices and values of a preset, or those that differ from the nearest."""
    source = preset.source[0].upper() + preset.source[1:]
    rows = [
        name for name, cells in preset.values.items() if {*cells} != {preset.defaults.get(name)}
    ]
    like = ""
    if nearest is not None and len(others := preset.differing(nearest)) <= SHORTER * len(rows):
        rows, like = others, f" As `{nearest.names[0]}`, except for:"
    lines = [f"{source.rstrip('.')}. {preset.of}."]
    if preset.choices:
        lines += ["", f"Choices and deviations: {preset.choices}."]
    if like:
        lines += ["", like.strip()]
    values = {name: preset.values.get(name, ("none",)) for name in rows}
    width = 1 + max((at for cells in values.values() for at in _changes(cells)), default=0)
    lines += ["", f"| | {' | '.join(sizes[:width])} |", "|---" * (1 + width) + "|"]
    for name, cells in values.items():
        shown = [cells[at] if at in {0, *_changes(cells)} else "" for at in range(width)]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _entry(section: list[Description], sizes: tuple[str, ...]) -> str:
    """Return the differences of a section's last preset from the nearest one before."""
    *before, preset = section
    nearest = min(before, key=preset.distance)
    values = []
    for name in preset.differing(nearest):
        cells = preset.values.get(name, ("none",))
        others = ", ".join(f"{sizes[at]}: {cells[at]}" for at in _changes(cells))
        values.append(f"{name} {cells[0]}{f' ({others})' if others else ''}")
    like = [] if nearest is before[0] else [f"as `{nearest.names[0]}`"]
    parts = [", ".join([*like, *values]) or "the same values"]
    if preset.source != nearest.source:
        parts.append(f"Source: {preset.source.rstrip('.')}")
    if preset.choices != nearest.choices:
        old, new = nearest.choices.split("; "), preset.choices.split("; ")
        added = "; ".join(clause for clause in new if clause not in old)
        removed = "; ".join(clause for clause in old if clause not in new)
        if len(added) + len(removed) < len(preset.choices):
            parts += [f"Also: {added}"] if added else []
            parts += [f"Does not apply: {removed}"] if removed else []
        else:
            parts.append(f"Choices: {preset.choices}")
    names = ", ".join(f"`{name}`" for name in preset.names)
    return f"- {names}: {'. '.join(parts)}."


def _changes(cells: tuple[str, ...]) -> list[int]:
    """Return the sizes at which a value differs from the size before."""
    return [at for at in range(1, len(cells)) if cells[at] != cells[at - 1]]


def _head_preset(name: str) -> Description:
    preset = PRESETS[name]
    default = settings_from(head_kind(preset.head).settings, {}, preset.head)
    defaults = {f"`{f.name}`": _text(getattr(default, f.name)) for f in fields(default)}
    return Description(
        [name],
        f"Head `{preset.head}`",
        name.partition("-")[0],
        preset.source,
        preset.leaves_open,
        _by_size(lambda size: _values(name, size), get_args(Size)),
        {**defaults, "word vectors": "random"},
    )


def _values(name: str, size: Any) -> dict[str, str]:
    """Return features and settings of an experiment at a size, as texts."""
    made = resolve_experiment(name, size=size)
    settings = settings_from(head_kind(made.head).settings, made.settings, made.head)
    return {
        "images": made.images,
        "captions": _captions(made.captions, averaged=made.average_captions),
        "word vectors": made.word_vectors or "random",
        **_finetuning(made.finetuning),
        **{f"`{f.name}`": _text(getattr(settings, f.name)) for f in fields(settings)},
    }


def _language_preset(name: str) -> Description:
    made = LANGUAGE_PRESETS[name].paper
    defaults = {f"`{f.name}`": _text(f.default) for f in fields(LanguageSettings)}
    sizes: tuple[Literal["paper", "small"], ...] = ("paper", "small")
    return Description(
        [name],
        "Language model",
        "",
        made.source,
        made.leaves_open,
        _by_size(lambda size: _language_values(name, size), sizes),
        defaults,
    )


def _language_values(name: str, size: Any) -> dict[str, str]:
    """Return features and settings of a language model at a size, as texts."""
    made = resolve_language_experiment(name, size=size)
    settings = settings_from(LanguageSettings, made.settings, made.model)
    images = {"images": made.images} if made.images else {}
    space = {"space": f"`{made.space}`", "points in training": f"of {made.points}"}
    return {
        "model": f"`{made.model}`",
        **images,
        **(space if made.space else {}),
        **{f"`{n}`": _text(value) for n, value in vars(settings).items()},
    }


def _by_size(
    values: Callable[[Any], dict[str, str]], sizes: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    """Return each value's texts at all sizes."""
    of_all = [values(size) for size in sizes]
    return {name: tuple(of[name] for of in of_all) for name in of_all[0]}


def _finetuning(how: Finetuning | None) -> dict[str, str]:
    values = {} if how is None else vars(how)
    return {f"fine-tuning: `{name}`": _text(value) or "–" for name, value in values.items()}


def _captions(captions: CaptionFeatures, *, averaged: bool) -> str:
    options = [f"{name} {value}" for name, value in captions.options.items()]
    return ", ".join([captions.encoder, *options, *(["averaged"] if averaged else [])])


def _text(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

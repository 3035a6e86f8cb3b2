"""Writes docs/deviations.md: every preset with its source, our choices, deviations and sizes.

python docs/tools/deviations.py
"""

from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args

from pipeline.heads.base import settings_from
from pipeline.heads.experiments import Size, resolve_experiment
from pipeline.heads.head_types import CaptionFeatures, Finetuning, head_kind
from pipeline.heads.presets import PRESETS
from pipeline.language.model_types import LanguageSettings
from pipeline.language.presets import LANGUAGE_PRESETS, resolve_language_experiment

PAGE = Path(__file__).parents[1] / "deviations.md"

_HEAD = """# Deviations from the papers

For each preset of `pipeline/heads/presets/`: its source, our choices where the source is silent and
our deviations, its non-default settings, and the changes of its smaller sizes. An empty cell
repeats the size before it. Deviations that all experiments of a head share are in the docstring of
its module ([Heads and experiments](heads.md)). `python docs/tools/deviations.py` writes this page;
a test compares it with the presets.
"""


def page() -> str:
    """Return the page; presets with equal contents share a section."""
    sections: dict[str, list[str]] = {}
    for name in PRESETS:
        sections.setdefault(_body(name), []).append(name)
    written = []
    for body, names in sections.items():
        settings = "\n".join(f"- `{name}`: {_own_settings(name)}" for name in names)
        before, _, table = body.partition("\n\n|")
        parts = [f"## {', '.join(names)}", before, settings, *([f"|{table}"] if table else [])]
        written.append("\n\n".join(parts) + "\n")
    return "\n".join([_HEAD, *written, *map(_language, LANGUAGE_PRESETS)])


def _language(name: str) -> str:
    """Return the section of a language model."""
    made = LANGUAGE_PRESETS[name].paper
    source = made.source[0].upper() + made.source[1:]
    lines = [f"## {name}", "", f"{source}. Language model `{made.model}`."]
    if made.space:
        lines += ["", f"Written in the space of `{made.space}`."]
    lines += ["", f"Choices and deviations: {made.leaves_open}.", ""]
    sizes = {size: _language_values(name, size) for size in ("paper", "small")}
    lines += [f"| | {' | '.join(sizes)} |", "|---" * (1 + len(sizes)) + "|"]
    for key, value in sizes["paper"].items():
        small = sizes["small"][key]
        lines.append(f"| {key} | {value} | {small if small != value else ''} |")
    return "\n".join(lines) + "\n"


def _language_values(name: str, size: Literal["paper", "small"]) -> dict[str, str]:
    """Return features and settings of a language model at a size, as texts."""
    made = resolve_language_experiment(name, size=size)
    settings = settings_from(LanguageSettings, made.settings, made.model)
    images = {"images": made.images} if made.images else {}
    points = {"points in training": f"of {made.points}"} if made.space else {}
    return {**images, **points, **{f"`{n}`": _text(value) for n, value in vars(settings).items()}}


def _body(name: str) -> str:
    """Return all of a section but its heading and settings."""
    preset = PRESETS[name]
    source = preset.source[0].upper() + preset.source[1:]
    lines = [f"{source}. Head `{preset.head}`."]
    if preset.leaves_open:
        lines += ["", f"Choices and deviations: {preset.leaves_open}."]
    sizes = {size: _values(name, size) for size in get_args(Size)}
    changed = [key for key in sizes["paper"] if len({of[key] for of in sizes.values()}) > 1]
    if changed:
        lines += ["", f"| | {' | '.join(sizes)} |", "|---" * (1 + len(sizes)) + "|"]
    for key in changed:
        cells, before = [], ""
        for of in sizes.values():
            cells.append(of[key] if of[key] != before else "")
            before = of[key]
        lines.append(f"| {key} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _own_settings(name: str) -> str:
    made = resolve_experiment(name, size="paper")
    settings = [f"`{key}` {_text(value)}" for key, value in made.settings.items()]
    further = ["captions averaged"] if made.average_captions else []
    if made.finetuning is not None:
        further += [f"{name} {value}" for name, value in _finetuning(made.finetuning).items()]
    return ", ".join([*settings, *further]) or "the head's defaults"


def _values(name: str, size: Size) -> dict[str, str]:
    """Return features and settings of an experiment at a size, as texts."""
    made = resolve_experiment(name, size=size)
    settings = settings_from(head_kind(made.head).settings, made.settings, made.head)
    return {
        "images": made.images,
        "captions": _captions(made.captions),
        "word vectors": made.word_vectors or "random",
        **_finetuning(made.finetuning),
        **{f"`{f.name}`": _text(getattr(settings, f.name)) for f in fields(settings)},
    }


def _finetuning(how: Finetuning | None) -> dict[str, str]:
    values = {} if how is None else vars(how)
    return {f"fine-tuning: `{name}`": _text(value) for name, value in values.items()}


def _captions(captions: CaptionFeatures) -> str:
    options = [f"{name} {value}" for name, value in captions.options.items()]
    return ", ".join([captions.encoder, *options])


def _text(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

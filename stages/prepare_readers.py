"""Commands of the dataset readers, made from the signature and the docstring of each.

A parameter is an option: `captions_per_image: int = 5` is `--captions-per-image`, a mapping by
split `splits` the repeatable `--split SPLIT=FILE`. Its text in the docstring is the help.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click

from pipeline.datasets.manifest import Manifest
from pipeline.datasets.readers import READERS
from pipeline.store.errors import PipelineError
from pipeline.store.registry import PluginError
from stages.command import COUNT, PATH, Command
from stages.prepare_options import Assignment, SplitName, by_split, count, out_option, write_dataset

_PARAMETER = re.compile(r"(\w+) : (.*)")
_NAME_HELP = "Name of the dataset.  [default: name of the folder OUT]"


def reader_command(name: str) -> click.Command:
    """Return the command of a reader; that of a broken guest states the reason."""
    try:
        return _command_of(name, READERS.get(name))
    # Code of another package may fail in any way, and must not end the commands of others.
    except Exception as error:
        if not (plugin := READERS.plugin(name)):
            raise
        if isinstance(error, PluginError):
            return _broken(name, error)
        reason = f"{name!r} of {plugin} has types or a docstring of which no command can be made"
        return _broken(name, PluginError(f"{reason} ({error}); correct that package"))


def _broken(name: str, error: PipelineError) -> click.Command:
    def callback(**values: Any) -> None:
        raise error

    anything = click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)
    settings = {"ignore_unknown_options": True}
    return Command(
        name, params=[anything], callback=callback, help=str(error), context_settings=settings
    )


@cache  # the same command each time a group is asked for it
def _command_of(name: str, read: Callable[..., Manifest]) -> click.Command:
    about, _, rest = inspect.cleandoc(read.__doc__ or "").partition("\n\nParameters\n")
    texts = _texts(rest)
    parameters = inspect.signature(read).parameters.values()
    kinds = get_type_hints(read)
    options = [_option(each, kinds[each.name], texts.get(each.name, "")) for each in parameters]
    required = " ".join(f"{o.opts[0]} {o.opts[0][2:].upper()}" for o in options if o.required)
    example = f"\b\nExample:\n  pipeline prepare {name} {required} --out data/{name}"

    def callback(out: Path, **values: Any) -> None:
        if "name" in values:
            values["name"] = values["name"] or out.resolve().name
        write_dataset(out, read, **values)

    command = Command(
        name, params=list(options), callback=callback, help=f"{_plain(about)}\n\n{example}"
    )
    out_option(command)
    return command


def _option(parameter: inspect.Parameter, kind: Any, text: str) -> click.Option:
    """Return the option of a parameter with this type and help."""
    name, mapped = parameter.name, _mapped_type(kind)
    required = parameter.default is inspect.Parameter.empty
    settings: dict[str, Any] = {"required": required, "help": text}
    if not required and parameter.default not in (None, ()):
        settings["default"] = parameter.default
    option = f"--{name.replace('_', '-')}"
    if name == "name":
        settings |= {"required": False, "help": _NAME_HELP}
    elif name == "split":
        settings["type"] = SplitName()
    elif mapped is not None:
        form, read = mapped
        settings |= {"type": Assignment(form, read), "multiple": True, "callback": by_split}
        option = option.removesuffix("s")
    elif kind is bool:
        settings["is_flag"] = True
    elif kind is int:
        settings["type"] = COUNT
    elif get_origin(kind) is Literal:
        settings["type"] = click.Choice(get_args(kind))
    elif "Sequence[tuple" in str(kind):
        read_file = Assignment("[SPLIT=]FILE", Path, split_needed=False)
        settings |= {"type": read_file, "multiple": True}
    else:
        settings |= {"type": PATH, "multiple": "Sequence" in str(kind)}
    if settings.get("multiple"):
        settings["help"] = f"{text.removesuffix('.')}; repeatable."
    return click.Option([option, name], **settings)


def _mapped_type(kind: Any) -> tuple[str, Callable[[str], Any]] | None:
    """Return form and reader of the values of a mapping by split; None for other types."""
    for part in (kind, *get_args(kind)):
        if get_origin(part) is Mapping:
            values = get_args(part)[1]
            if values is int:
                return "SPLIT=COUNT", count
            return ("SPLIT=FOLDER", str) if values is str else ("SPLIT=FILE", Path)
    return None


def _texts(docstring: str) -> dict[str, str]:
    """Return the texts of the parameters of a numpydoc docstring, without their types."""
    texts: dict[str, str] = {}
    name = ""
    for line in docstring.partition("\n\n")[0].splitlines()[1:]:
        if match := _PARAMETER.match(line):
            name, texts[match[1]] = match[1], match[2]
        else:
            texts[name] += f" {line.strip()}"
    return {name: _plain(text.partition(". ")[2]) for name, text in texts.items()}


def _plain(text: str) -> str:
    return text.replace("`", "")

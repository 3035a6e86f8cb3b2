"""Base classes of all commands: a log line of settings, grouped options, suggestions.

Settings are read from the parsed command line, so that no command lists them again.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from pipeline.store.errors import PipelineError
from pipeline.store.objects.urls import shown
from pipeline.store.wording import did_you_mean, without_secrets
from stages.console import LocalPath, OutputPath, as_options, begin, printable, write_line

COUNT = click.IntRange(1)
PATH = LocalPath(path_type=Path)
FOLDER = LocalPath(path_type=Path, file_okay=False)
FEATURES = IMAGES = click.Path(path_type=Path)
"""Feature sets and images, which may also be named by their URLs."""

Decorator = Callable[[Any], Any]
"""What adds an option or several to a command."""

# Fewer options than this are read faster in one list.
_GROUPED_FROM = 10
_INPUT, _OUTPUT, _OTHERS = "Input", "Output", "Options"
# Not a setting of the context: click keeps a command's help option from the first context on.
_HELP = ("-h", "--help")


class _Hints(click.Command):
    """A command that has -h too, and suggests the nearest options for an unknown one."""

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        """Return the names of the option that shows the help."""
        return list(_HELP)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line, or for a group the options before the command's name."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            params = self.get_params(ctx)
            options = [name for param in params for name in param.opts if name[:2] == "--"]
            name = error.option_name
            hint = did_you_mean(name, options)
            raise click.UsageError(f"No such option {name!r}; {hint}", ctx) from error


class Command(_Hints):
    """A command that logs its settings, and shows its options in groups with their defaults."""

    logs_settings = True

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        # Not by `show_default` of the context, which pages of the documentation build themselves.
        for param in self.params:
            if isinstance(param, click.Option) and param.show_default is None:
                param.show_default = True

    def invoke(self, ctx: click.Context) -> Any:
        """Log non-default settings and run; messages name options instead of parameters."""
        begin(ctx)
        if self.logs_settings and (given := settings_of(ctx)):
            write_line(printable(f"{ctx.command_path}: {given}"))
        try:
            return super().invoke(ctx)
        except PipelineError as error:
            error.args = (as_options(str(error)),)
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, grouped by `section_of`."""
        groups: dict[str, list[tuple[str, str]]] = {_OTHERS: [], _INPUT: [], _OUTPUT: []}
        options = [
            (param, record)
            for param in self.get_params(ctx)
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx))
        ]
        for param, record in options:
            section = section_of(param) if len(options) >= _GROUPED_FROM else _OTHERS
            groups.setdefault(section, []).append(record)
        for title, records in groups.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class Answer(Command):
    """A command that prints an answer, without a log line of settings."""

    logs_settings = False


class Group(_Hints, click.Group):
    """A group of commands; for an unknown one, the nearest are suggested."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the first argument."""
        name = args[0]
        commands = self.list_commands(ctx)
        if name not in commands and not name.startswith("-") and not ctx.resilient_parsing:
            hint = did_you_mean(name, commands)
            raise click.UsageError(f"No such command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


def option(
    long: str, text: str, kind: Any = None, name: str | None = None, **attributes: Any
) -> Decorator:
    """Return an option with its help and type; `name` is its parameter if not as the option."""
    return click.option(long, *([name] if name else []), type=kind, help=text, **attributes)


def flag(long: str, text: str, name: str | None = None) -> Decorator:
    """Return an option without a value."""
    return option(long, text, name=name, is_flag=True)


def add_options(*options: Decorator) -> Decorator:
    """Return a decorator that adds options, in the order of the help."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def section(title: str, *options: Decorator) -> Decorator:
    """Return a decorator that adds options, which `--help` shows under a title."""

    def decorate(command: Any) -> Any:
        before = len(getattr(command, "__click_params__", []))
        decorated = add_options(*options)(command)
        for param in decorated.__click_params__[before:]:
            param.section = title
        return decorated

    return decorate


def section_of(param: click.Option) -> str:
    """Return the title under which `--help` shows an option: of its `section` or its type."""
    if isinstance(param.type, OutputPath) or param.name in ("out", "as_json"):
        return _OUTPUT
    if (title := getattr(param, "section", None)) is not None:
        return str(title)
    return _INPUT if isinstance(param.type, click.Path) else _OTHERS


def settings_of(ctx: click.Context) -> str:
    """Return the parameters set by the user or params.yaml, as NAME=VALUE on one line."""
    shown = []
    for param in ctx.command.params:
        name = param.name or ""
        value = ctx.params.get(name)
        source = ctx.get_parameter_source(name)
        unset = source is None or source is ParameterSource.DEFAULT
        as_usual = source is ParameterSource.DEFAULT_MAP and value == param.default
        if unset or as_usual or value is None or value is False:
            continue
        label = max(param.opts, key=len).lstrip("-")
        shown.append(label if value is True else f"{label}={_text(value)}")
    return " ".join(shown)


def _text(value: Any) -> str:
    """Return a parameter's value as text: lists comma-separated, pairs as NAME=VALUE."""
    if isinstance(value, Mapping):
        return ",".join(f"{key}={_text(item)}" for key, item in value.items())
    if isinstance(value, tuple):
        pairs = (item if isinstance(item, tuple) else (item,) for item in value)
        return ",".join("=".join(_text(part) for part in p if part is not None) for p in pairs)
    return shown(value) if isinstance(value, Path) else without_secrets(str(value))

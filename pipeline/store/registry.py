"""Registries of what can be named, and the guests in them: things of other packages.

The built-in things of a kind are listed in their room, as "module:attribute" by name. An installed
package adds guests by entry points of the group `caption_feature_pipeline.<kind>`; a program adds
them by a call. Nothing is imported before it is asked for by its name.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from pipeline.store.errors import PipelineError, UnknownName
from pipeline.store.wording import did_you_mean

T = TypeVar("T")

_GROUP = "caption_feature_pipeline."


class PluginError(PipelineError):
    """A guest cannot be imported, is not what its kind expects, or has a name that is taken."""


@dataclass(frozen=True)
class Entry:
    """One thing of a registry, not yet imported."""

    target: str
    """"module:attribute", or "" for one that was registered by a call."""
    plugin: str = ""
    """"distribution==version" of a guest, or "registered in MODULE"; "" if built in."""


class Registry(Generic[T]):
    """The things of one kind by name: built-in ones in their order, then guests by name.

    A guest never replaces a built-in thing, nor another guest.
    """

    def __init__(
        self,
        kind: str,
        home: str,
        builtin: Mapping[str, str],
        expected: str,
        accepts: Callable[[Any], bool],
    ) -> None:
        """Register the built-in things of a kind, such as "encoders".

        `home` is the "module:attribute" of this registry. `accepts` returns whether a guest is what
        the kind expects; `expected` describes it, such as "a subclass of Encoder".
        """
        self.kind, self._home = kind, home
        self._expected, self._accepts = expected, accepts
        self._builtin = {name: Entry(target) for name, target in builtin.items()}
        self._called: dict[str, tuple[Entry, T]] = {}
        _REGISTRIES.append(self)

    def entries(self) -> dict[str, Entry]:
        """Return all things by name, without an import of any."""
        called = {name: entry for name, (entry, _) in self._called.items()}
        guests = {**self._installed, **called}
        return self._builtin | {name: guests[name] for name in sorted(guests)}

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self.entries())

    def __contains__(self, name: object) -> bool:
        """Return whether a thing has this name; built-in names need no search for guests."""
        return name in self._builtin or name in self.entries()

    def plugin(self, name: str) -> str:
        """Return where a thing comes from: `Entry.plugin`."""
        return "" if name in self._builtin else self.entries().get(name, Entry("")).plugin

    def get(self, name: str, recorded: str = "") -> T:
        """Import and return a thing; raise UnknownName, or PluginError for a broken guest.

        `recorded` is the plugin that an output records, which a missing guest's message names.
        """
        if name in self._called:
            return self._called[name][1]
        if name not in self:
            if recorded:
                raise PluginError(
                    f"{name!r} is one of the {self.kind} of {recorded}, which is not installed or "
                    "registered; install that package, or register it again"
                )
            one = self.kind.removesuffix("s")
            hint = did_you_mean(name, self, f"pipeline list {self.kind}")
            raise UnknownName(f"no {one} is called {name!r}; {hint}")
        if name in self._builtin:
            return imported(self._builtin[name].target)
        entry = self._installed[name]
        return self._guest(name, entry.target, entry.plugin)

    def at(self, target: str) -> T:
        """Import and return the thing at "module:attribute", which needs no registration."""
        return self._guest(target, target, "")

    def usable(self, guests_only: bool = False) -> dict[str, T]:
        """Import and return things by name, without the guests that `faults` names."""
        things = {}
        for name in self:
            if not (guests_only and name in self._builtin):
                with suppress(PluginError):
                    things[name] = self.get(name)
        return things

    def faults(self) -> list[str]:
        """Return why each installed guest that is of no use is skipped in lists."""
        faults = list(self._ignored)
        for name in self._installed:
            try:
                self.get(name)
            except PluginError as error:
                faults.append(str(error))
        return faults

    def register(self, name: str, thing: T, module: str) -> None:
        """Add a guest by a call from a module; the same name again replaces what a call added."""
        if name in self._builtin or name in self._installed:
            owner = self.plugin(name) or "this package"
            raise PluginError(
                f"{name!r} is the name of one of the {self.kind} of {owner}; choose another name"
            )
        plugin = f"registered in {module}"
        self._called[name] = Entry("", plugin), self._checked(name, thing, plugin)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how another process finds its own registry of this kind."""
        return imported, (self._home,)

    def _guest(self, name: str, target: str, plugin: str) -> T:
        try:
            thing = imported(target)
        # Code of another package may fail in any way.
        except Exception as error:
            whose = f"{name!r} of {plugin} cannot be imported from {target}"
            raise PluginError(
                f"{whose if plugin else repr(target) + ' cannot be imported'} "
                f"({type(error).__name__}: {error}); "
                + ("repair or remove that package" if plugin else "install it, or set PYTHONPATH")
            ) from error
        return self._checked(name, thing, plugin)

    def _checked(self, name: str, thing: T, plugin: str) -> T:
        if not self._accepts(thing):
            raise PluginError(
                f"{name!r} of {plugin or 'this path'} is a {type(thing).__name__}, expected "
                f"{self._expected}; correct that package"
            )
        return thing

    @property
    def _installed(self) -> dict[str, Entry]:
        return self._found[0]

    @property
    def _ignored(self) -> list[str]:
        return self._found[1]

    @cached_property
    def _found(self) -> tuple[dict[str, Entry], list[str]]:
        """The guests of installed packages, and why others are ignored."""
        guests: dict[str, Entry] = {}
        ignored = []
        # In the order of distributions, so that every process finds the same guests.
        for plugin, name, target in sorted(
            (f"{point.dist.name}=={point.dist.version}", point.name, point.value)
            for point in entry_points(group=_GROUP + self.kind)
            if point.dist is not None
        ):
            if name in self._builtin or name in guests:
                owner = guests[name].plugin if name in guests else "this package"
                ignored.append(
                    f"{name!r} of {plugin} is ignored: it is the name of one of the {self.kind} "
                    f"of {owner}"
                )
            else:
                guests[name] = Entry(target, plugin)
        return guests, ignored


Guests = tuple[Registry[Any], dict[str, tuple[Entry, Any]]]
"""What calls have registered in a registry, which another process finds as its own."""

_REGISTRIES: list[Registry[Any]] = []


def guests_of_calls() -> list[Guests]:
    """Return what calls have registered in this process, for tasks in other processes."""
    return [(each, each._called) for each in _REGISTRIES if each._called]


def adopt(guests: Sequence[Guests]) -> None:
    """Register what `guests_of_calls` of another process returned."""
    for registry, called in guests:
        registry._called |= called


def imported(target: str) -> Any:
    """Import and return "module:attribute"."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)

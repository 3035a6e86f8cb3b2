"""Schema and validation of params.yaml; no other module knows its keys."""

from collections.abc import Iterable, Mapping
from dataclasses import Field, asdict, dataclass, field, fields, make_dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import yaml

from pipeline.datasets.readers import READERS
from pipeline.store.errors import PipelineError, UnknownName, WrongUsage
from pipeline.store.families import additions
from pipeline.store.files import file_name
from pipeline.store.jobs.options import Compute, Storage
from pipeline.store.option_fields import name_of
from pipeline.store.schema import SchemaError, convert
from pipeline.store.wording import did_you_mean, nearest
from stages.console import log_once
from stages.experiment_name import given_files

T = TypeVar("T")

PARAMS_FILE = Path("params.yaml")
# Params of other programs have these keys too: alone they do not make a file this program's.
_SHARED = {"evaluate", "seed"}


@dataclass(frozen=True)
class Dataset:
    """Preparation of a dataset: a kind, and the options of `pipeline prepare KIND`.

    In the file, the options are on the same level as the kind.
    """

    kind: str  # a reader, what a family adds to `pipeline prepare`, or "folder"
    options: dict[str, Any]

    def __post_init__(self) -> None:
        others = ("folder", *additions("PREPARE", "stages"))
        if self.kind not in READERS and self.kind not in others:
            known = (*others, *READERS)
            raise ValueError(f"unknown kind {self.kind!r}; {did_you_mean(self.kind, known)}")

    @property
    def arguments(self) -> list[str]:
        """The options as command line arguments."""
        arguments = []
        for name, value in self.options.items():
            option = f"--{name.replace('_', '-')}"
            if value is True:
                arguments.append(option)
                continue
            values = value if isinstance(value, list) else [value]
            if isinstance(value, dict):
                values = [f"{key}={item}" for key, item in value.items()]
            for item in values:  # an option with several values is repeated
                arguments += [option, str(item)]
        return arguments


@dataclass(frozen=True)
class Splits:
    """Roles of the splits; None: by their usual names, see `pipeline.datasets.splits`."""

    train: str | None = None
    validation: str | None = None
    test: str | None = None


def extract_fields(*kinds: type) -> list["Field[Any]"]:
    """Return the options of `pipeline extract` whose defaults the file sets."""
    return [f for kind in kinds for f in fields(kind) if f.metadata["recorded"]]


EXTRACT = extract_fields(Compute, Storage)
Extract: Any = make_dataclass(
    "Extract",
    # A path is a text.
    [(name_of(f), str if Path in get_args(f.type) else f.type, f.default) for f in EXTRACT],
    frozen=True,
)


@dataclass(frozen=True)
class CaptionFeatures:
    """A sentence encoder and further options of `pipeline text`, by their long names.

    In the file, the options are on the same level as the encoder.
    """

    encoder: str
    options: dict[str, Any]


@dataclass(frozen=True)
class ExperimentEntry:
    """Entry of an experiment: features of both sides, a preset, and overrides.

    Without `preset`, the preset has the name of the experiment; `head` selects a head with its own
    defaults instead of a preset. Without `images` or `captions`, the preset's features are used.
    Other fields are those of `resolve_experiment`.
    """

    images: str | None = None
    captions: str | None = None
    preset: str | None = None
    head: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    word_vectors: str | None = None
    average_captions: bool | None = None
    finetuning: dict[str, Any] = field(default_factory=dict)
    precision: Literal["float32", "bf16"] = "float32"
    csls: bool = False


@dataclass(frozen=True)
class Params:
    """Contents of params.yaml; the defaults apply to a folder without the file."""

    dataset: str = ""
    # `pipeline prepare` alone reads them: other outputs depend on the prepared dataset.
    datasets: dict[str, Dataset] = field(default_factory=dict, metadata={"recorded": False})
    splits: Splits = Splits()
    image_features: list[str] = field(default_factory=list)
    extract: Extract = field(default_factory=Extract)
    word_vectors: dict[str, dict[str, Any]] = field(default_factory=dict)
    caption_features: dict[str, CaptionFeatures] = field(default_factory=dict)
    seed: int = 0
    max_epochs: int | None = None
    evaluate: dict[str, Any] = field(default_factory=dict)
    size: Literal["paper", "small", "tiny"] = "small"
    experiments: dict[str, ExperimentEntry] = field(default_factory=dict)
    ensembles: dict[str, dict[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.datasets and self.dataset not in self.datasets:
            raise ValueError(
                f"dataset is {self.dataset!r}, which is not among datasets "
                f"({', '.join(self.datasets)}); add how it is prepared"
            )

    @property
    def extract_options(self) -> dict[str, Any]:
        """Options of `pipeline extract` by key, without those left to their defaults."""
        return {name: value for name, value in asdict(self.extract).items() if value is not None}

    def dataset_named(self, name: str) -> Dataset:
        """Return the preparation of a dataset."""
        return self._named("dataset", name, self.datasets)

    def entry(self, name: str) -> ExperimentEntry:
        """Return the entry of an experiment."""
        return self._named("experiment", name, self.experiments)

    def ensemble(self, name: str) -> dict[str, float]:
        """Return an ensemble's weights by experiment; empty for those of `ENSEMBLES`."""
        weights = self._named("ensemble", name, self.ensembles)
        for member in weights:
            self.entry(member)
        return weights

    @staticmethod
    def _named(kind: str, name: str, entries: Mapping[str, T]) -> T:
        if name not in entries:
            hint = did_you_mean(name, entries)
            raise UnknownName(f"{PARAMS_FILE} has no {kind} {name!r}; {hint}")
        return entries[name]


def load_params() -> Params:
    """Read params.yaml of this folder, and experiments in files of the command line.

    The defaults replace a missing or another program's params.yaml.
    """
    given = {name: _entry_in(file) for name, file in given_files().items()}
    params = _params_of_folder()
    return replace(params, experiments={**params.experiments, **given}) if given else params


def _entry_in(file: Path) -> ExperimentEntry:
    """Read a file with one experiment, whose keys are those of an entry of params.yaml."""
    if not file.is_file():
        raise PipelineError(f"{file} not found; expected a YAML file with one experiment")
    values, names = _read(file, "preset: vsepp"), [f.name for f in fields(ExperimentEntry)]
    if others := [key for key in values if key not in names]:
        raise PipelineError(f"{_unknown(file, others[0], names)}; known: {', '.join(names)}")
    return _converted(file, values, ExperimentEntry)


def _params_of_folder() -> Params:
    values = _read(PARAMS_FILE) if PARAMS_FILE.is_file() else {}
    names = [f.name for f in fields(Params)]
    own = [key for key in values if key in names]
    others = [key for key in values if key not in names]
    if others and {*own} <= _SHARED:
        shown = ", ".join(f"{key}{_misspelt(key, names)}" for key in others[:3])
        log_once(f"{PARAMS_FILE} is not used: it has keys of another program ({shown})")
        return Params()
    if others:
        raise PipelineError(
            f"{_unknown(PARAMS_FILE, others[0], names)} and is read as this program's because of "
            f"{own[0]!r}; known: {', '.join(names)}. Keep others in another file, or these in a "
            "new folder by `pipeline init`"
        )
    params = _converted(PARAMS_FILE, _with_options(values), Params)
    for kind in ("datasets", "word_vectors", "caption_features", "experiments", "ensembles"):
        by_file: dict[str, str] = {}
        for name in getattr(params, kind):
            try:
                file = file_name(name, of_model=kind == "caption_features")
            except WrongUsage as error:
                raise PipelineError(f"{PARAMS_FILE}, {kind}: {error}") from error
            if (other := by_file.setdefault(file, name)) != name:
                raise PipelineError(
                    f"{PARAMS_FILE}, {kind}: {other!r} and {name!r} both name the file {file!r}: "
                    "choose another name for one"
                )
    return params


def _misspelt(key: Any, names: Iterable[str]) -> str:
    near = get_close_matches(str(key), names, 1, 0.85)  # much nearer than another program's words
    return f", a misspelt {near[0]}?" if near else ""


def _unknown(file: Path, key: Any, names: Iterable[str]) -> str:
    near = " or ".join(nearest(str(key), names, most=2))
    return f"{file} has an unknown key {key!r}{near and f' (did you mean {near}?)'}"


def _converted(file: Path, values: dict[Any, Any], kind: type[T]) -> T:
    try:
        return convert(values, kind)
    except SchemaError as error:
        raise PipelineError(f"{file} is wrong at {error}") from error


def _read(file: Path, example: str = "seed: 0") -> dict[Any, Any]:
    try:
        values = _parsed(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, AttributeError, RecursionError) as error:
        raise PipelineError(f"{file} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict | None):
        raise PipelineError(
            f"{file} is a {type(values).__name__}, expected a mapping such as `{example}`"
        )
    return values or {}


@lru_cache(maxsize=2)
def _parsed(text: str) -> Any:
    """Return what a text of YAML holds, which nobody changes; a command reads it several times."""
    return yaml.load(text, _Once)


class _Once(yaml.SafeLoader):
    """YAML in which no mapping has a key twice, as DVC requires too; yaml keeps the last one."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        if repeated := [key for key in keys if keys.count(key) > 1]:
            problem = f"the key {repeated[0]!r} occurs more than once"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return super().construct_mapping(node, deep)


def _with_options(values: dict[Any, Any]) -> dict[Any, Any]:
    """Return the values of the file, with the options of datasets and encoders in own mappings."""
    return values | {
        section: {name: _apart(entry, key) for name, entry in values[section].items()}
        for section, key in (("datasets", "kind"), ("caption_features", "encoder"))
        if isinstance(values.get(section), dict)
    }


def _apart(entry: Any, key: str) -> Any:
    if not isinstance(entry, dict) or key not in entry:
        return entry
    return {key: entry[key], "options": {k: v for k, v in entry.items() if k != key}}


def extract_defaults() -> dict[str, Any]:
    """Return the defaults of `pipeline extract` from this folder's params.yaml; {} if not ours."""
    try:
        values = _read(PARAMS_FILE) if PARAMS_FILE.is_file() else {}
    except PipelineError:
        return {}
    if "image_features" not in values:
        return {}
    options = load_params().extract_options
    return {f.name: options[name_of(f)] for f in EXTRACT if name_of(f) in options}

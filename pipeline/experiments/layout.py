"""File locations of a dataset and its experiments; no other module knows the folders."""

import glob
import os
import re
from dataclasses import dataclass
from pathlib import Path

from pipeline.store.errors import PipelineError
from pipeline.store.files import file_name, parse_json

DATA = Path("data")

_SEED = re.compile(r"-seed\d+$")


class NotMade(PipelineError):
    """An experiment's file, or one of its inputs, does not exist yet."""


def seeded(name: str, seed: int, first: int) -> str:
    """Return the name of an experiment trained with a seed; `first` has no suffix."""
    return name if seed == first else f"{name}-seed{seed}"


def unseeded(name: str) -> str:
    """Return the experiment name without the suffix of `seeded`."""
    return _SEED.sub("", name)


def seeds_of(file: Path) -> list[Path]:
    """Return a file of an experiment, existing or not, and those of its further seeds."""
    others = file.parent.glob(f"{glob.escape(file.stem)}-seed*{file.suffix}")
    return [file, *sorted(other for other in others if _SEED.search(other.stem))]


@dataclass(frozen=True, init=False)
class Layout:
    """The folders of one dataset and of everything that is computed for it.

    A path is returned whether it exists or not; only `encoder` of an experiment opens files.

    Attributes
    ----------
    dataset : Path. Folder of the prepared dataset; the last part of its path is its name.
    root : Path. Folder of all outputs, by kind and dataset. By default the folder `data` that
        contains the dataset, else `data` in the current folder.

    Examples
    --------
    >>> layout = pipeline.Layout("data/mine")
    >>> str(layout.features("resnet152-pool")), str(layout.head("vsepp"))
    ('data/features/mine/resnet152-pool', 'data/heads/mine/vsepp')
    """

    dataset: Path
    root: Path

    def __init__(self, dataset: str | Path, root: str | Path | None = None) -> None:
        dataset = Path(dataset)
        if root is None:
            parent = Path(os.path.abspath(dataset)).parent  # noqa: PTH100 - keeps links
            # "." and ".." have no parent of their own.
            own = parent if dataset.name in {"", ".."} else dataset.parent
            root = own if parent.name == DATA.name else DATA
        object.__setattr__(self, "dataset", dataset)
        object.__setattr__(self, "root", Path(root))

    @classmethod
    def of(cls, name: str, root: Path = DATA) -> "Layout":
        """Return the layout of the dataset `<root>/<name>`."""
        return cls(root / file_name(name), root)

    @property
    def name(self) -> str:
        """The dataset's name."""
        return self.dataset.resolve().name

    def features(self, recipe: str) -> Path:
        """Return the folder of the image features of a recipe."""
        return self._of("features") / file_name(recipe, of_model=True)

    def proposals(self, method: str) -> Path:
        """Return the folder of the proposals of a method."""
        return self._of("proposals") / file_name(method)

    def regions(self, recipe: str, method: str) -> Path:
        """Return the folder of the features of a method's proposals."""
        return self._of("features") / file_name(f"{recipe}@{method}", of_model=True)

    def localization(self, experiment: str) -> Path:
        """Return an experiment's localization file."""
        return self.localizations / f"{file_name(experiment)}.h5"

    def vectors(self, name: str) -> Path:
        """Return the file of the dataset's word vectors with a name."""
        return self._of("vectors") / f"{file_name(name)}.safetensors"

    def named_vectors(self, name: str | None) -> str | None:
        """Return the file of the dataset's word vectors with a name, or the name if none exists.

        A name such as word2vec-100d thus means the dataset's own vectors; others, such as the
        packaged glove-6b-50d or a path, are passed on to `pipeline.text.vectors.load_vectors`.
        """
        if name is None or Path(name).name != name:
            return name
        file = self.vectors(name)
        return str(file) if file.is_file() else name

    def text(self, name: str) -> Path:
        """Return the folder of the caption features with a name."""
        return self._of("text") / file_name(name, of_model=True)

    def encoder(self, name: str) -> Path:
        """Return the folder of the fitted encoder of caption features, or of an experiment.

        An experiment's encoder is the one that its trained head was fitted on, found by recipe.
        """
        text = self.text(name)
        text = text.resolve() if text.is_symlink() else text  # made elsewhere, with its encoder
        encoder = text.with_name(f"{text.name}.encoder")
        if encoder.is_dir() or not (head := self.head(name) / "head.json").is_file():
            return encoder
        from pipeline.store.shards.index import read_index  # imports h5py

        fitted_on = parse_json(head.read_bytes())["inputs"]["captions"]["recipe_hash"]
        for index in sorted(self._of("text").glob("*/index.json")):
            if read_index(index.parent).header.recipe_hash == fitted_on:
                return index.parent.with_name(f"{index.parent.name}.encoder")
        return encoder

    def head(self, experiment: str) -> Path:
        """Return the folder of an experiment's trained head."""
        return self.heads / file_name(experiment)

    def language(self, experiment: str) -> Path:
        """Return the folder of an experiment's trained language model."""
        return self._of("language") / file_name(experiment)

    def embeddings(self, experiment: str) -> Path:
        """Return an experiment's embedding file."""
        return self._of("embeddings") / f"{file_name(experiment)}.h5"

    def seeds(self, name: str) -> list[Path]:
        """Return the embedding files of an experiment or ensemble, see `seeds_of`."""
        return seeds_of(
            self.ensemble(name) if self.ensemble(name).is_file() else self.embeddings(name)
        )

    def ensemble(self, name: str) -> Path:
        """Return an ensemble's embedding file, separate from those that it depends on."""
        return self._of("ensembles") / f"{file_name(name)}.h5"

    def searched(self, name: str, splits: str = "all") -> Path:
        """Return the embedding file of splits to search: "all", or names separated by commas."""
        # Not in the folder of the test split's file, since searches write it too.
        part = "" if splits == "all" else f".{splits.replace(',', '+')}"
        return self._of("search") / f"{file_name(name)}{part}.h5"

    def evaluation(self, experiment: str) -> Path:
        """Return the folder of an experiment's recall table."""
        return self.evaluations / file_name(experiment)

    def captions(self, name: str) -> Path:
        """Return the caption file of an experiment or baseline."""
        return self._of("captions") / f"{file_name(name)}.jsonl"

    def caption_scores(self, name: str) -> Path:
        """Return the folder of the scores of a caption file."""
        return self._of("caption-scores") / file_name(name)

    def regularities(self, experiment: str) -> Path:
        """Return the file of the regularities of an experiment's space."""
        return self._of("regularities") / f"{file_name(experiment)}.json"

    def probes(self, experiment: str) -> Path:
        """Return the file of the probe results of an experiment's embeddings."""
        return self._of("probes") / f"{file_name(experiment)}.json"

    @property
    def heads(self) -> Path:
        """Parent folder of the experiments' head folders."""
        return self._of("heads")

    @property
    def texts(self) -> Path:
        """Parent folder of the caption feature folders."""
        return self._of("text")

    @property
    def embedding_folders(self) -> tuple[Path, Path]:
        """The folders of the embedding files of experiments and of ensembles."""
        return self._of("embeddings"), self._of("ensembles")

    @property
    def evaluations(self) -> Path:
        """Parent folder of the recall table folders of experiments and ensembles."""
        return self._of("evaluations")

    @property
    def localizations(self) -> Path:
        """The folder of the localization files of all experiments."""
        return self._of("localizations")

    @property
    def report(self) -> Path:
        """The folder of the joint tables and of the report's pages."""
        return self._of("report")

    def _of(self, kind: str) -> Path:
        return self.root / kind / self.name

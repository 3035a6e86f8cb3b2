"""The steps from a dataset to recall tables: what each makes, from what, and whether it is there.

Files say what they were made from: shards their recipe and ids, a head its settings and the SHA-256
of its dataset and features, embeddings that of their head, a table that of its embeddings. So what
has to be made is read from the files, made by `pipeline run`, a single command or DVC alike.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.clips.catalogue import recipe_of_clips
from pipeline.clips.extract import extract_clips
from pipeline.clips.recipes import ClipRecipe
from pipeline.clips.sound_recipes import AnySoundRecipe
from pipeline.datasets.manifest import MANIFEST_FILE, Manifest, read_manifest
from pipeline.datasets.splits import Role, split_for
from pipeline.experiments.checks import MISSING, difference, index_fault, json_fault, weights_of
from pipeline.experiments.layout import Layout, seeded
from pipeline.finetuning import WEIGHTS_FILE
from pipeline.finetuning.finetune import finetune
from pipeline.hashing import sha256_of_file
from pipeline.heads import HeadError
from pipeline.heads.catalogue import CaptionFeatures, Experiment, with_epochs_at_most
from pipeline.heads.data.pairs import made_from
from pipeline.heads.data.word_vectors import origin_of
from pipeline.heads.embed import embed
from pipeline.heads.experiments import resolve_experiment
from pipeline.heads.fit import fit
from pipeline.heads.trained_head import HEAD_FILE, TENSORS_FILE
from pipeline.images.extract import extract
from pipeline.images.side_by_side import SideBySide, split_name
from pipeline.language.catalogue import LanguageExperiment
from pipeline.language.fit import fit_language_model
from pipeline.language.trained_model import LANGUAGE_FILE
from pipeline.progress import Monitor
from pipeline.recipes import Recipe, resolve_recipe
from pipeline.retrieval.embedding_file import read_provenance
from pipeline.retrieval.ensemble import ensemble
from pipeline.retrieval.evaluate import evaluate
from pipeline.retrieval.tables import PROVENANCE_FILE
from pipeline.shards.feature_set import FeatureSet, read_set_index
from pipeline.shards.index import INDEX_FILE, read_index
from pipeline.shards.side_by_side import write_view
from pipeline.text.encode import encode
from pipeline.text.vectors import load_vectors
from pipeline.text.vectors.settings import Training
from pipeline.text.vectors.store import store_vectors

_NOT_OF_TRAINING = {"source", "tokenizer", "split", "corpus", "allow_leaks"}


@dataclass(frozen=True)
class Step:
    """One file or folder to make.

    Attributes
    ----------
    job : the command that makes it, such as "extract".
    name : of what is made, such as a recipe or an experiment.
    out : its folder or file.
    needs : what it is made from: `out` of other steps.
    size : of what it holds, for a person.
    fault : returns why it has to be made, such as `MISSING`; "" if it is there as it should be.
    make : makes it, or what is missing of it.
    always : whether `make` finds out by itself what is missing, and is called without a fault too,
        since only it sees that a picture or a caption has changed.
    """

    job: str
    name: str
    out: Path
    needs: tuple[Path, ...]
    size: str
    fault: Callable[[], str]
    make: Callable[[Monitor], object]
    always: bool = False

    def __str__(self) -> str:
        return f"{self.job} {self.name}"


@dataclass(frozen=True)
class Plan:
    """The steps of some experiments on one dataset, in an order in which they can be done.

    Attributes
    ----------
    layout : where the files lie.
    splits : of the roles of `pipeline.datasets.splits`, where they are not the usual ones.
    first_seed : of training; what is trained with another has it in its name, see `seeded`.
    max_epochs : of training, at most; None: as the experiments say.
    extract : options of `pipeline.images.extract.extract`, such as weights and precision.
    word_vectors : by name, the options of `pipeline.text.vectors.store.store_vectors`.
    evaluate : options of `pipeline.retrieval.evaluate.evaluate`.
    leave_out_failed : whether heads do without images that failed.
    experiment_named : returns an experiment by name, from which another one starts.
    steps : filled by `add`, each once.
    """

    layout: Layout
    splits: Mapping[str, str | None] = field(default_factory=dict)
    first_seed: int = 0
    max_epochs: int | None = None
    extract: Mapping[str, Any] = field(default_factory=dict)
    word_vectors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    evaluate: Mapping[str, Any] = field(default_factory=dict)
    leave_out_failed: bool = False
    experiment_named: Callable[[str], Experiment] = resolve_experiment
    steps: dict[Path, Step] = field(default_factory=dict)

    @cached_property
    def manifest(self) -> Manifest:
        """The dataset."""
        return read_manifest(self.layout.dataset)

    def split(self, role: Role) -> str:
        """Return the split that has a role."""
        return split_for(role, self.manifest, self.splits.get(role))

    def add(self, experiment: Experiment, seed: int) -> None:
        """Add the steps of an experiment, trained with a seed.

        Raises
        ------
        DatasetError
            The dataset lacks a split.
        HeadError
            The experiment is one of regions and phrases.
        """
        if experiment.of_phrases:
            raise HeadError(
                f"{experiment.name!r} is fitted on regions and phrases, not on images and "
                "captions; use `pipeline localize`"
            )
        experiment = replace(
            experiment,
            name=seeded(experiment.name, seed, self.first_seed),
            word_vectors=self._add_own_vectors(experiment.word_vectors),
        )
        features = self._add_features(experiment.images)
        captions = self._add_text(experiment.captions)
        if experiment.finetuning is None:
            head = self._add_head(experiment, seed, features, captions)
        else:
            head = self._add_finetuned(experiment, seed, features, captions)
            features = self._add_tuned_features(experiment, head)
        embeddings = self._add_embeddings(experiment, features, captions, head)
        self._add_evaluation(experiment.name, embeddings)

    def add_language(self, experiment: LanguageExperiment, seed: int) -> Path:
        """Add the steps of a language model, and of the head in whose space it writes.

        Raises
        ------
        DatasetError
            The dataset lacks a split.
        HeadError, LanguageError
            A setting or a name is unknown.
        """
        name = seeded(experiment.name, seed, self.first_seed)
        experiment = replace(experiment, name=name).at_most(self.max_epochs)
        inputs = {"sentences": self._add_text(experiment.sentences)}
        if experiment.takes_tags:
            inputs["tags"] = self._add_text(experiment.tags)
        if experiment.condition == "image":
            inputs["images"] = self._add_features(experiment.images)
        head: Path | None = None
        if experiment.condition == "sentence":
            space = self.experiment_named(experiment.space)
            head = self.layout.head(seeded(space.name, seed, self.first_seed))
            if head not in self.steps:
                self.add(space, seed)
            inputs["captions"] = self.layout.text(space.captions.name)
        out = self.layout.language(experiment.name)

        def wanted() -> dict[str, Any]:
            hashes = {
                f"{kind}_sha256": read_set_index(folder).content_sha256
                for kind, folder in inputs.items()
            }
            manifest = sha256_of_file(self.layout.dataset / MANIFEST_FILE)
            origin = None
            if head is not None:
                tensors = sha256_of_file(head / TENSORS_FILE)
                origin = {"experiment": head.name, "tensors_sha256": tensors}
            return {
                "model": experiment.model,
                "settings": experiment.settings,
                "seed": seed,
                "train_split": self.split("train"),
                "validation_split": self.split("validation"),
                "made_from": {"manifest_sha256": manifest, **hashes},
                "head": origin,
            }

        def make(monitor: Monitor) -> object:
            return fit_language_model(
                self.layout.dataset,
                out,
                experiment=experiment,
                head=head,
                train_split=self.split("train"),
                validation_split=self.split("validation"),
                seed=seed,
                monitor=monitor,
                sentences=inputs["sentences"],
                tags=inputs.get("tags"),
                images=inputs.get("images"),
                captions=inputs.get("captions"),
            )

        fault = json_fault(out / LANGUAGE_FILE, wanted)
        needs = (*inputs.values(), *([head] if head is not None else []))
        size = f"language model {experiment.model}"
        return self._add(Step("train", name, out, needs, size, fault, make))

    def add_ensemble(self, name: str, members: Mapping[str, float]) -> None:
        """Add the steps of an ensemble, whose members are to be added before it."""
        out = self.layout.ensemble(name)
        files = {member: self.layout.embeddings(member) for member in members}

        def fault() -> str:
            if not out.is_file():
                return MISSING
            found = {m: {"embeddings_sha256": sha256_of_file(f)} for m, f in files.items()}
            wanted = {"members": found, "weights": [*members.values()]}
            return difference(read_provenance(out), wanted)

        def make(monitor: Monitor) -> object:
            return ensemble(files, out, name=name, weights=members)

        size = f"{len(files)} members"
        self._add(Step("ensemble", name, out, tuple(files.values()), size, fault, make))
        self._add_evaluation(name, out)

    def _made_from(self, images: Path, captions: Path) -> dict[str, str]:
        return made_from(self.layout.dataset, read_set_index(images), read_index(captions))

    def _add(self, step: Step) -> Path:
        return self.steps.setdefault(step.out, step).out

    def _recipe(self, name: str) -> Recipe | ClipRecipe | AnySoundRecipe:
        """Return a recipe with the precision and the storage that are asked for."""
        given = self.extract
        resolve = resolve_recipe if self.manifest.media == "images" else recipe_of_clips
        return resolve(name, given.get("precision", "float32"), given.get("storage", "float32"))

    def _add_features(self, name: str) -> Path:
        given = dict(self.extract)
        out, rows = self.layout.features(name), len(self.manifest.entries)
        if (names := split_name(name)) is not None:
            return self._add_side_by_side(name, names, out)
        recipe = self._recipe(name)
        job = extract if self.manifest.media == "images" else extract_clips

        def make(monitor: Monitor) -> object:
            return job(self.layout.dataset, out, recipe=name, monitor=monitor, **given)

        size = _rows_of(recipe, rows)
        fault = index_fault(out, rows, recipe.to_json())
        return self._add(Step("extract", name, out, (), size, fault, make, always=True))

    def _add_side_by_side(self, name: str, names: SideBySide, out: Path) -> Path:
        parts = [self._add_features(recipe) for recipe in names.recipes]

        def make(monitor: Monitor) -> object:
            return write_view(out, [FeatureSet(part) for part in parts], names.scaling)

        fault = index_fault(out, len(self.manifest.entries))
        size = f"{len(parts)} sets side by side"
        return self._add(Step("extract", name, out, tuple(parts), size, fault, make, always=True))

    def _add_text(self, captions: CaptionFeatures) -> Path:
        options = dict(captions.options)
        needs: tuple[Path, ...] = ()
        if (vectors := str(options.get("vectors"))) in self.word_vectors:
            needs = (self._add_vectors(vectors),)
            options["vectors"] = str(needs[0])
        out = self.layout.text(captions.name)
        rows = sum(len(entry.captions) for entry in self.manifest.entries)

        def make(monitor: Monitor) -> object:
            return encode(
                self.layout.dataset,
                out,
                encoder=captions.encoder,
                fit_split=self.split("train"),
                monitor=monitor,
                **options,
            )

        size = f"{rows} rows of {captions.encoder}"
        fault = index_fault(out, rows)
        return self._add(Step("text", captions.name, out, needs, size, fault, make, always=True))

    def _add_own_vectors(self, name: str | None) -> str | None:
        """Return the file of the dataset's word vectors of that name, or the name."""
        if name is None or name not in self.word_vectors:
            return name
        return str(self._add_vectors(name))

    def _add_vectors(self, name: str) -> Path:
        out, options = self.layout.vectors(name), dict(self.word_vectors[name])

        def make(monitor: Monitor) -> object:
            others = {k: options[k] for k in _NOT_OF_TRAINING & options.keys()}
            numbers = {k: v for k, v in options.items() if k not in {*others, "train"}}
            training = Training(options["train"], **numbers) if "train" in options else None
            return store_vectors(
                self.layout.dataset, out, training=training, monitor=monitor, **others
            )

        size = ", ".join(f"{key} {value}" for key, value in options.items())
        return self._add(
            Step("vectors", name, out, (), size, lambda: "" if out.is_file() else MISSING, make)
        )

    def _head_as_wanted(
        self, experiment: Experiment, seed: int, images: Path, captions: Path
    ) -> dict[str, Any]:
        """Return what the description of an experiment's head must say."""
        wanted: dict[str, Any] = {
            "kind": experiment.head,
            "settings": with_epochs_at_most(experiment.head, experiment.settings, self.max_epochs),
            "seed": seed,
            "train_split": self.split("train"),
            "validation_split": self.split("validation"),
            "average_captions": experiment.average_captions,
            "made_from": self._made_from(images, captions),
        }
        for file in self._own_vectors(experiment):
            wanted["word_vectors"] = origin_of(load_vectors(str(file), ()))
        return wanted

    def _own_vectors(self, experiment: Experiment) -> tuple[Path, ...]:
        """Return the dataset's own word vectors that an experiment's words start from, if any."""
        source = experiment.word_vectors
        return () if source is None or Path(source) not in self.steps else (Path(source),)

    def _add_head(self, experiment: Experiment, seed: int, images: Path, captions: Path) -> Path:
        out = self.layout.head(experiment.name)

        def wanted() -> dict[str, Any]:
            return self._head_as_wanted(experiment, seed, images, captions)

        def make(monitor: Monitor) -> object:
            return fit(
                self.layout.dataset,
                out,
                experiment=experiment,
                images=images,
                captions=captions,
                train_split=self.split("train"),
                validation_split=self.split("validation"),
                seed=seed,
                max_epochs=self.max_epochs,
                leave_out_failed=self.leave_out_failed,
                monitor=monitor,
            )

        fault = json_fault(out / HEAD_FILE, wanted)
        needs, size = (images, captions, *self._own_vectors(experiment)), f"head {experiment.head}"
        return self._add(Step("train", experiment.name, out, needs, size, fault, make))

    def _add_finetuned(
        self, experiment: Experiment, seed: int, images: Path, captions: Path
    ) -> Path:
        how, out = experiment.finetuning, self.layout.head(experiment.name)
        assert how is not None
        start = self.layout.head(seeded(how.start, seed, self.first_seed))
        if start not in self.steps:
            self.add(self.experiment_named(how.start), seed)

        def wanted() -> dict[str, Any]:
            return {
                **self._head_as_wanted(experiment, seed, images, captions),
                "finetuning": {
                    **asdict(how),
                    "start_sha256": sha256_of_file(start / TENSORS_FILE),
                    **weights_of(images),
                },
            }

        def make(monitor: Monitor) -> object:
            return finetune(
                self.layout.dataset,
                out,
                experiment=experiment,
                start=start,
                images=images,
                captions=captions,
                weights=self.extract.get("weights"),
                train_split=self.split("train"),
                validation_split=self.split("validation"),
                seed=seed,
                max_epochs=self.max_epochs,
                leave_out_failed=self.leave_out_failed,
                monitor=monitor,
            )

        described = json_fault(out / HEAD_FILE, wanted)

        def fault() -> str:
            found = described()
            return found or ("" if (out / WEIGHTS_FILE).is_file() else MISSING)

        needs, size = (images, captions, start), f"head {experiment.head} and its image network"
        return self._add(Step("train", experiment.name, out, needs, size, fault, make))

    def _add_tuned_features(self, experiment: Experiment, head: Path) -> Path:
        given = {**self.extract, "weights": head / WEIGHTS_FILE}
        out, rows = self.layout.features(experiment.embedded_images), len(self.manifest.entries)
        recipe = self._recipe(experiment.images)

        def fault() -> str:
            other = index_fault(out, rows, recipe.to_json())()
            if other or weights_of(out)["weights_sha256"] == sha256_of_file(head / WEIGHTS_FILE):
                return other
            return "made with other weights"

        def make(monitor: Monitor) -> object:
            if (out / INDEX_FILE).is_file() and fault():
                monitor.log(f"{out} holds features of an earlier training and is removed")
                shutil.rmtree(out)
            return extract(
                self.layout.dataset, out, recipe=experiment.images, monitor=monitor, **given
            )

        size = _rows_of(recipe, rows)
        name = experiment.embedded_images
        return self._add(Step("extract", name, out, (head,), size, fault, make, always=True))

    def _add_embeddings(
        self, experiment: Experiment, images: Path, captions: Path, head: Path
    ) -> Path:
        out, test = self.layout.embeddings(experiment.name), self.split("test")

        def fault() -> str:
            if not out.is_file():
                return MISSING
            found = read_provenance(out)
            wanted = {
                "tensors_sha256": sha256_of_file(head / TENSORS_FILE),
                "split": test,
                **self._made_from(images, captions),
            }
            return difference(found, wanted)

        def make(monitor: Monitor) -> object:
            return embed(
                self.layout.dataset,
                out,
                head=head,
                images=images,
                captions=captions,
                split=test,
                experiment=experiment.name,
                leave_out_failed=self.leave_out_failed,
                monitor=monitor,
            )

        needs = (images, captions, head)
        size = f"{len(self.manifest.select(test))} images of split {test}"
        return self._add(Step("embed", experiment.name, out, needs, size, fault, make))

    def _add_evaluation(self, name: str, embeddings: Path) -> None:
        out = self.layout.evaluation(name)

        def wanted() -> dict[str, Any]:
            return {"embeddings_sha256": sha256_of_file(embeddings)}

        def make(monitor: Monitor) -> object:
            return evaluate(embeddings, out, monitor=monitor, **self.evaluate)

        fault = json_fault(out / PROVENANCE_FILE, wanted)
        self._add(Step("evaluate", name, out, (embeddings,), "a table", fault, make))


def _rows_of(recipe: Recipe | ClipRecipe | AnySoundRecipe, rows: int) -> str:
    megabytes = rows * recipe.row_bytes / 1e6
    return f"{rows} rows of {recipe.shape} {recipe.storage}, {megabytes:.1f} MB"

"""A trained language model on disk: `language.safetensors` and `language.json`, with further files.

`vocabulary.json` has its words, `trigrams.safetensors` the n-gram model of the same sentences, and
`concepts.safetensors` the embeddings of words and training sentences and the training tags.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save as save_arrays
from safetensors.torch import load_file, save
from torch import nn

from pipeline.heads.base import History, settings_from
from pipeline.heads.inputs.feature_rows import Features
from pipeline.heads.inputs.feature_spec import FeatureSpec
from pipeline.language import LanguageError
from pipeline.language.language_task import Sizes, build_model
from pipeline.language.model_types import LanguageSettings
from pipeline.language.ngram import NGramModel
from pipeline.store.devices import usable_device
from pipeline.store.files import appearing_whole, parse_json, write_json
from pipeline.store.hashing import sha256_of_file
from pipeline.store.own_files import reading
from pipeline.store.schema import convert_fields
from pipeline.text.encoders.token_ids import END, FIRST_WORD
from pipeline.text.vocabulary import Vocabulary, load_vocabulary, save_vocabulary

LANGUAGE_FILE, TENSORS_FILE = "language.json", "language.safetensors"
_HISTORY_FILE, _VOCABULARY_FILE = "history.json", "vocabulary.json"
_NGRAMS_FILE, _CONCEPTS_FILE = "trigrams.safetensors", "concepts.safetensors"


@dataclass(frozen=True, eq=False)
class Concepts:
    """Data of the training split for generating captions."""

    words: Features  # (vocab_size, dim) float32 by token id, zeros for marks; empty without a head
    sentences: Features  # (n, dim) float32 of the distinct captions; empty without a head
    tags: npt.NDArray[np.int64]  # (n, length) of each caption, then `PADDING`; of length 0 without


@dataclass(frozen=True, eq=False)
class TrainedLanguageModel:
    """A trained language model and its provenance."""

    experiment: str
    model: str  # a name in `MODELS`
    settings: Mapping[str, Any]  # non-default ones of `LanguageSettings`
    seed: int
    dataset: str
    train_split: str
    validation_split: str
    sizes: Sizes
    inputs: Mapping[str, FeatureSpec]  # "sentences", and "tags", "captions" or "images"
    head: Mapping[str, Any] | None  # experiment and `tensors_sha256`; None: no embedding space
    made_from: Mapping[str, str]  # SHA-256 of the manifest and of the rows, by name
    history: History  # one entry per epoch
    created_by: str  # software and versions
    vocabulary: Vocabulary  # of the sentences
    module: Any  # `SentenceModel` in evaluation mode
    ngrams: NGramModel  # of the training sentences
    concepts: Concepts
    tensors_sha256: str | None = None  # of the model's file; None before saving

    @property
    def chosen(self) -> Mapping[str, float]:
        """The history entry of the selected epoch."""
        return next(entry for entry in self.history if entry.get("best"))

    @property
    def provenance(self) -> dict[str, Any]:
        """Provenance of its captions, as JSON values."""
        return {
            "experiment": self.experiment,
            "model": self.model,
            "settings": dict(self.settings),
            "seed": self.seed,
            "trained_on": f"{self.dataset}/{self.train_split}",
            "chosen_on": f"{self.dataset}/{self.validation_split}",
            "head": None if self.head is None else dict(self.head),
            "software": self.created_by,
            "tensors_sha256": self.tensors_sha256,
        }

    def text(self, ids: npt.ArrayLike) -> str:
        """Return the words of token ids, separated by spaces, without marks."""
        words = self.vocabulary.words
        return " ".join(words[i - FIRST_WORD] for i in np.asarray(ids).tolist() if i >= FIRST_WORD)

    def tag_ids(self, sequence: str) -> list[int]:
        """Return the ids of space-separated tags, followed by the end mark."""
        if "tags" not in self.inputs:
            raise LanguageError(
                f"the language model {self.model!r} of {self.experiment!r} has no tags"
            )
        recipe = self.inputs["tags"].recipe
        ids = {tag: recipe["first_tag"] + at for at, tag in enumerate(recipe["tags"])}
        if unknown := [tag for tag in sequence.split() if tag not in ids]:
            raise LanguageError(
                f"{self.experiment!r} knows no tag {', '.join(map(repr, unknown))} of the sequence "
                f"{sequence!r}; its tags are {' '.join(ids)}"
            )
        return [*(ids[tag] for tag in sequence.split()), END]

    def save(self, folder: str | Path) -> "TrainedLanguageModel":
        """Write the model's files and return it with `tensors_sha256`."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {n: t.detach().cpu().clone() for n, t in self.module.state_dict().items()}
        with appearing_whole(folder / TENSORS_FILE) as part:
            part.write_bytes(save(tensors))
        save_vocabulary(self.vocabulary, folder / _VOCABULARY_FILE)
        self.ngrams.save(folder / _NGRAMS_FILE)
        points: dict[str, npt.NDArray[Any]] = {
            "words": self.concepts.words.astype(np.float16),
            "sentences": self.concepts.sentences.astype(np.float16),
            "tags": self.concepts.tags.astype(np.uint8),
        }
        with appearing_whole(folder / _CONCEPTS_FILE) as part:
            part.write_bytes(save_arrays(points))
        saved = replace(self, tensors_sha256=sha256_of_file(folder / TENSORS_FILE))
        write_json(folder / _HISTORY_FILE, self.history)
        others = (_VOCABULARY_FILE, _NGRAMS_FILE, _CONCEPTS_FILE)
        files = {name: sha256_of_file(folder / name) for name in others}
        apart = {"vocabulary", "module", "ngrams", "concepts"}
        values = {name: value for name, value in vars(saved).items() if name not in apart}
        values |= {
            "settings": dict(self.settings),
            "sizes": asdict(self.sizes),
            "inputs": {name: asdict(spec) for name, spec in self.inputs.items()},
            "head": None if self.head is None else dict(self.head),
            "made_from": dict(self.made_from),
            "files": files,
        }
        # Last, with the hashes of the others: a killed save leaves files that do not match.
        write_json(folder / LANGUAGE_FILE, values)
        return saved


def load_language_model(folder: str | Path, device: str = "cpu") -> TrainedLanguageModel:
    """Load a language model that `pipeline run` wrote, on a device; features are not needed."""
    folder = Path(folder)
    described, remedy = folder / LANGUAGE_FILE, "run `pipeline run` again"
    with reading(described, f"the record of a language model in {folder}", remedy, LanguageError):
        values = convert_fields(
            parse_json(described.read_bytes()),
            TrainedLanguageModel,
            ("vocabulary", "module", "ngrams", "concepts", "history"),
            history=list[dict[str, int | float | bool]],
            files=dict[str, str],
        )
        files = {**values.pop("files"), TENSORS_FILE: values["tensors_sha256"]}
        for name, expected in files.items():
            if sha256_of_file(folder / name) != expected:
                raise LanguageError(
                    f"{folder / name} is not the file that {described} describes; run `pipeline "
                    "run` again"
                )
        settings = settings_from(LanguageSettings, values["settings"], values["model"])
        with torch.random.fork_rng(devices=[]):  # initial weights draw from the global generator
            module: nn.Module = build_model(values["model"], settings, values["sizes"])
        module.load_state_dict(load_file(folder / TENSORS_FILE))
        points = load_arrays(folder / _CONCEPTS_FILE)
        concepts = Concepts(
            points["words"].astype(np.float32),
            points["sentences"].astype(np.float32),
            points["tags"].astype(np.int64),
        )
        return TrainedLanguageModel(
            **values,
            vocabulary=load_vocabulary(folder / _VOCABULARY_FILE),
            module=module.eval().to(usable_device(device)),
            ngrams=NGramModel.load(folder / _NGRAMS_FILE),
            concepts=concepts,
        )

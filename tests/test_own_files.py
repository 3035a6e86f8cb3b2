"""Readers of this project's files: a corrupt one ends in a named error, never in other values."""

import errno
import fcntl
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from pipeline.clips.sound.words import load_sound_words
from pipeline.heads.trained_head import HEAD_FILE, TENSORS_FILE, load_head
from pipeline.heads.training.checkpoints import CHECKPOINT_FILE, Checkpoints, TrainingState
from pipeline.language import LanguageError
from pipeline.language.language_task import Sizes, build_model
from pipeline.language.model_types import LanguageSettings
from pipeline.language.ngram import NGramModel, fit_ngrams
from pipeline.language.trained_model import (
    LANGUAGE_FILE,
    Concepts,
    TrainedLanguageModel,
    load_language_model,
)
from pipeline.regions import RegionError
from pipeline.regions.localization.localized import read_localized, write_localized
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.embedding_file import read_embeddings, write_embeddings
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.stored_graph import StoredGraph, read_graph
from pipeline.store import guard
from pipeline.store.errors import FileReadError, PipelineError
from pipeline.store.own_files import DamagedFile, reading
from pipeline.store.packed import PackedTexts
from pipeline.store.shards.format import DamagedShard, ShardError
from pipeline.store.shards.index import read_index
from pipeline.store.shards.reader import ShardFile
from pipeline.store.tensor_file import read_metadata, read_tensors, write_tensors
from pipeline.text.fisher.codebook import fit_codebook, load_codebook
from pipeline.text.tokenizers.tokenizer import TOKENIZERS
from pipeline.text.vectors import VectorsError, WordVectors
from pipeline.text.vectors.stored import read_stored, save_vectors
from pipeline.text.vocabulary import (
    VOCABULARY_RULES,
    build_vocabulary,
    load_vocabulary,
    save_vocabulary,
)
from tests.clips import test_sound_words
from tests.corruptions import CORRUPTIONS
from tests.heads import factories as heads
from tests.heads.test_heads import fitted, trained_head
from tests.regions.localization.factories import localized
from tests.store.shards.factories import build

# What a format without a checksum of its values cannot notice: other values of the right type.
VALUES = frozenset({"another value"})


@dataclass(frozen=True)
class Reader:
    """A reader of a file that `make` writes into a folder and returns."""

    make: Callable[[Path], Path]
    read: Callable[[Path], Any]
    error: type[PipelineError]
    unnoticed: frozenset[str] = VALUES
    """Corruptions after which values may be read."""
    skipped: frozenset[str] = frozenset()


def _shards(compress: bool) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        build(folder, 7, rows_per_shard=None, compress=compress, failed=())
        return folder / "shard-00000-of-00001.h5"

    return make


def _inspected(path: Path) -> object:
    shard = ShardFile(path)
    return shard.inspect(0), shard.attributes, shard.crc32.tolist(), shard.sources.keys()


def _embeddings(store: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        rows = np.random.default_rng(0).normal(size=(3, 9)).astype(np.float32)
        made = Embeddings([*"abc"], rows, [*"xyz"], [*"abc"], rows[::-1].copy(), "cosine", {"a": 1})
        write_embeddings(folder / "e.h5", made, store=store)
        return folder / "e.h5"

    return make


def _localized(folder: Path) -> Path:
    write_localized(folder / "l.h5", localized())
    return folder / "l.h5"


def _head(file: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        settings: dict[str, Any] = {"dim": 4}
        trained_head(*fitted("cca", **settings), "cca", settings).save(folder)
        return folder / file

    return make


def _checkpoint(folder: Path) -> Path:
    checkpoints, state = _training(folder)
    loss = sum(parameter.sum() for parameter in state.net.parameters())
    loss.backward()  # type: ignore[union-attr]
    state.optimiser.step()
    state.history.append({"epoch": 0})
    state.best = dict(state.net.state_dict())
    checkpoints.save(state)
    return folder / CHECKPOINT_FILE


def _training(folder: Path) -> tuple[Checkpoints, TrainingState]:
    task = heads.small_task(1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = task.build(None)
    rng = np.random.Generator(np.random.PCG64(0))
    state = TrainingState(net, task.optimiser(net), rng, torch.Generator())
    return Checkpoints(folder, "made", torch.device("cpu")), state


def _resumed(path: Path) -> object:
    checkpoints, state = _training(path.parent)
    with torch.random.fork_rng():
        if not checkpoints.resume(state, 9):
            raise DamagedFile(f"{path} is ignored; another is written")
    return state.history


def _vocabulary(folder: Path) -> Path:
    tokenizer, rule = TOKENIZERS["w2vv-filterstop"], VOCABULARY_RULES["w2vv"]
    save_vocabulary(build_vocabulary(["dog cat dog"] * 5, tokenizer, rule), folder / "v.json")
    return folder / "v.json"


def _word_vectors() -> WordVectors:
    matrix = np.random.default_rng(0).laplace(size=(40, 5)).astype(np.float32)
    return WordVectors("tiny", tuple(f"word{n}" for n in range(40)), matrix, "ab" * 32)


def _vectors(folder: Path) -> Path:
    save_vectors(folder / "v.safetensors", _word_vectors())
    return folder / "v.safetensors"


def _codebook(folder: Path) -> Path:
    path = folder / "c.safetensors"
    fit_codebook(_word_vectors(), "lmm", 2, seed=0, ica=False).save(path)
    return path


def _sound_words(folder: Path) -> Path:
    test_sound_words.fitted().save(folder / "s.safetensors")
    return folder / "s.safetensors"


def _ngrams(folder: Path) -> Path:
    fit_ngrams(np.array([[4, 5, 3], [4, 6, 3]]), 7, order=2).save(folder / "n.safetensors")
    return folder / "n.safetensors"


def _language_model(file: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        vocabulary = load_vocabulary(_vocabulary(folder))
        settings, sizes = LanguageSettings(context=2, dim=3, word_dim=3), Sizes(6, 0, 0, 0)
        none = np.zeros((0, 0), np.float32)
        TrainedLanguageModel(
            "made", "lbl", asdict(settings), 0, "made", "train", "val", sizes, {}, None, {},
            [{"epoch": 0, "best": True}], "tests", vocabulary,
            build_model("lbl", settings, sizes), NGramModel.load(_ngrams(folder)),
            Concepts(none, none, np.zeros((0, 0), np.int64)),
        ).save(folder / "model")  # fmt: skip
        return folder / "model" / file

    return make


def _graph(folder: Path) -> Path:
    points = np.eye(2, dtype=np.float32)
    near = np.array([1, -1, 0, -1], np.int32)
    levels, rows = np.ones(2, np.int32), np.arange(2)
    StoredGraph({"a": 1}, PackedTexts("ab"), rows, points, levels, near, 0).write(folder / "g")
    return folder / "g"


def _read_graph(path: Path) -> StoredGraph:
    if (graph := read_graph(path, 1)) is None:
        raise DamagedFile(f"{path} does not exist; it is built")
    return graph


READERS = {
    "shard": Reader(_shards(False), _inspected, DamagedShard),
    "compressed shard": Reader(_shards(True), _inspected, DamagedShard),
    "index": Reader(
        lambda folder: _shards(False)(folder).parent / "index.json", lambda p: read_index(p.parent),
        ShardError,
    ),
    "embeddings": Reader(_embeddings("float32"), read_embeddings, EmbeddingsError),
    "binary embeddings": Reader(_embeddings("binary"), read_embeddings, EmbeddingsError),
    "localizations": Reader(_localized, read_localized, RegionError),
    # Heads of earlier versions lack some entries.
    "record of a head": Reader(
        _head(HEAD_FILE), lambda p: load_head(p.parent), PipelineError, VALUES | {"missing part"}
    ),
    "tensors of a head": Reader(
        _head(TENSORS_FILE), lambda p: load_head(p.parent), PipelineError, frozenset()
    ),
    # The rest of the corruptions needs a program that rewrites the file.
    "checkpoint": Reader(
        _checkpoint, _resumed, DamagedFile,
        skipped=frozenset(list(CORRUPTIONS)[7:]),
    ),
    "vocabulary": Reader(_vocabulary, load_vocabulary, PipelineError),
    "vectors": Reader(_vectors, lambda path: read_stored(path, None), VectorsError),
    "codebook": Reader(_codebook, lambda p: load_codebook(p, _word_vectors()), PipelineError),
    "sound words": Reader(
        _sound_words, load_sound_words, PipelineError, VALUES | {"another length"}
    ),
    "language model": Reader(
        _language_model(LANGUAGE_FILE), lambda p: load_language_model(p.parent), LanguageError
    ),
    "n-grams": Reader(
        _language_model("trigrams.safetensors"), lambda p: load_language_model(p.parent),
        LanguageError, frozenset(),
    ),
    "graph": Reader(_graph, _read_graph, PipelineError),
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_corrupt_files_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # None of these hangs HDF5, and a process for each of hundreds of files takes minutes.
    monkeypatch.setattr(guard, "_try", lambda read, files, arguments: (len(files), 0))
    reader = READERS[name]
    path = reader.make(tmp_path)
    valid = path.read_bytes()
    reader.read(path)
    missed, versions = [], 0
    for corruption in CORRUPTIONS.keys() - reader.skipped:
        for number, data in enumerate(CORRUPTIONS[corruption](valid, tmp_path / "scratch")):
            path.write_bytes(data)
            versions += 1
            try:
                reader.read(path)
            except reader.error as error:
                refused = path.name in str(error)
            else:
                refused = corruption in reader.unnoticed
            missed += [] if refused else [(corruption, number)]
    assert missed == []
    assert versions > len(CORRUPTIONS)
    path.unlink()
    with pytest.raises(PipelineError):
        reader.read(path)
    path.write_bytes(valid)
    reader.read(path)


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES, errno.ESTALE, errno.ENOMEM])
def test_a_read_that_the_system_refuses_is_not_a_corrupt_file(code: int, tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    for error, refused in ((DamagedFile, FileReadError), (DamagedShard, ShardError)):
        with (
            pytest.raises(refused, match=r"x cannot be read .*nothing was changed") as caught,
            reading(tmp_path / "x", "a file", "delete it", error, refused),
        ):
            raise OSError(code, os.strerror(code))
        assert type(caught.value) is refused
        assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (KeyError("words"), "'words' is missing"), (KeyError(), "KeyError"),
        (KeyError("no object 'a b'"), "no object 'a b'"), (ValueError("two\n lines"), "two lines"),
        (MemoryError(), "MemoryError"), (AttributeError("x"), "x"), (OSError("no HDF5"), "no HDF5"),
        (OSError(errno.ENOENT, "gone", "part"), "gone"),
    ],
)  # fmt: skip
def test_the_error_has_file_expectation_cause_and_remedy(
    cause: Exception, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "x"
    path.touch()
    expected = rf"^{path} is damaged or not a file of words \(.*{reason}.*\); save it$"
    with (
        pytest.raises(DamagedFile, match=expected),
        reading(path, "a file of words", "save it"),
    ):
        raise cause
    with pytest.raises(DamagedFile, match="y not found, expected a file; store it"):  # noqa: SIM117
        with reading(tmp_path / "y", "a file", "store it"):
            (tmp_path / "y").read_text()
    with pytest.raises(KeyboardInterrupt), reading(path, "a file", "store it"):
        raise KeyboardInterrupt
    with pytest.raises(PipelineError, match=r"^known$"), reading(path, "a file", "store it"):
        raise PipelineError("known")


def test_tensor_files_are_deterministic_and_keep_their_metadata(tmp_path: Path) -> None:
    arrays = {"b": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "a": np.zeros(0, np.uint8)}
    for name in "xy":
        write_tensors(tmp_path / name, arrays, "key", {"é": [1, None], "a": json.loads("1e-5")})
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()
    assert read_metadata(tmp_path / "x", "key") == {"é": [1, None], "a": 1e-5}
    for name, array in read_tensors(tmp_path / "x", ["b", "a"]).items():
        np.testing.assert_array_equal(array, arrays[name], strict=True)


def test_a_locked_file_is_named_as_locked(tmp_path: Path) -> None:
    """As HDF5 locks a file that a program writes."""
    with h5py.File(tmp_path / "e.h5", "w"):
        pass
    with (tmp_path / "e.h5").open() as writing:
        fcntl.flock(writing, fcntl.LOCK_EX)
        with pytest.raises(PipelineError, match=r"e\.h5 is locked: another program has it open"):
            read_embeddings(tmp_path / "e.h5")

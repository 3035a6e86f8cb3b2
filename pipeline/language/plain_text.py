"""Sentences of a text file as further training data of a language model.

A model that is conditioned on the sentence's own embedding needs no images for training (Kiros,
Salakhutdinov & Zemel 2014, section 2.5).
"""

from pathlib import Path

import numpy as np

from pipeline.heads.inputs.feature_rows import ArrayRows, Features, Rows
from pipeline.heads.inputs.pairs import Pairs
from pipeline.heads.training.training_job import TrainingJob
from pipeline.language import LanguageError
from pipeline.language.data import LanguageInputs, OpenLanguageInputs, embed_captions
from pipeline.store.wording import counted
from pipeline.text.encode import encoder_folder
from pipeline.text.encoders.token_ids import FIRST_WORD, UNKNOWN
from pipeline.text.fitted import load_encoder
from pipeline.text.vectors.corpus import leaks, read_lines

_AT_ONCE = 4096


def with_plain_text(
    pairs: Pairs, corpus: Path, inputs: LanguageInputs, opened: OpenLanguageInputs, job: TrainingJob
) -> Pairs:
    """Return training pairs followed by one pair per sentence of a text file, all in memory.

    Sentences are encoded by the encoders that were fitted on the captions, so their vocabulary is
    that of the captions. Their conditions are their own embeddings in the head's space. Blank lines
    and lines that equal captions of other splits are left out.
    """
    if "images" in opened.features:
        raise LanguageError(
            f"a model conditioned on images cannot be trained on the sentences of {corpus}, which "
            "have none; use a model conditioned on sentences, such as kiros2014-sc-nlm"
        )
    texts, lines = _sentences(corpus, job)
    names = [name for name in ("sentences", "tags", "captions") if name in opened.features]
    encoders = {name: load_encoder(encoder_folder(getattr(inputs, name)), texts) for name in names}
    blocks: list[Features] = []
    points: list[Features] = []
    with job.options.monitor.progress(corpus.name, "sentence") as progress:
        for start in range(0, len(texts), _AT_ONCE):
            some = texts[start : start + _AT_ONCE]
            encoded = {name: encoder.encode(some) for name, encoder in encoders.items()}
            captions = encoded.pop("captions", None)
            blocks.append(np.concatenate([*encoded.values()], axis=1))
            if opened.head is None or captions is None:
                points.append(np.zeros((len(some), 1), np.float32))
            else:
                points.append(embed_captions(opened.head, ArrayRows(captions)))
            progress(min(start + _AT_ONCE, len(texts)), len(texts), 0)
    rows = np.concatenate(blocks)
    words = rows[:, : opened.sizes.length]
    unknown, others = int((words == UNKNOWN).sum()), int((words >= FIRST_WORD).sum())
    job.log(
        f"{corpus}: {counted(len(texts), 'sentence')}, {unknown} of {unknown + others} words are "
        "not in the captions' vocabulary"
    )
    ids = [f"{corpus.name}:{line}" for line in lines]
    return Pairs(
        [*pairs.image_ids, *ids],
        [*pairs.caption_ids, *ids],
        np.concatenate([pairs.image_of_caption, len(pairs.images) + np.arange(len(ids))]),
        _both(pairs.images, np.concatenate(points)),
        _both(pairs.captions, rows),
    )


def _sentences(corpus: Path, job: TrainingJob) -> tuple[list[str], list[int]]:
    """Return the sentences of a file, and their line numbers from 1."""
    lines = read_lines(corpus)
    splits = [name for name in job.manifest.counts if name != job.train_split]
    others = [job.manifest.captions(name) for name in splits]
    held_out = {key: text for c in others for key, text in zip(c.ids, c.texts, strict=True)}
    # A caption of the test split must not be seen in training, wherever it was copied from.
    leaked = {line for line, _ in leaks(lines, held_out)}
    if leaked:
        number = counted(len(leaked), "line is a caption", "lines are captions")
        job.log(f"{corpus}: {number} of another split, left out")
    numbers = [n for n, line in enumerate(lines, 1) if line.strip() and n not in leaked]
    if not numbers:
        raise LanguageError(
            f"{corpus}: no sentence found in {len(lines)} lines; expected one sentence per line, "
            "other than captions of other splits"
        )
    return [lines[n - 1] for n in numbers], numbers


def _both(rows: Rows, more: Features) -> ArrayRows:
    return ArrayRows(np.concatenate([rows.take(np.arange(len(rows))), more]))

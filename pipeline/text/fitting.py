"""Fitting of an encoder on the training captions: missing files are fitted, others reused.

An encoder determines every row, so another encoder invalidates all rows. An update replaces one
that was fitted on outdated captions once the new one is complete; one with other options is moved
aside, and restored when those options are requested again.
"""

import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.store.builder.locking import WORK_FOLDER
from pipeline.store.builder.reuse import supersede
from pipeline.store.current.record import MISSING, Record, first_difference, stale
from pipeline.store.current.replace import (
    Contents,
    finish_swap,
    forget_superseded,
    is_superseded,
    make_way,
    mark_superseded,
    swap,
)
from pipeline.store.files import write_json
from pipeline.store.hashing import sha256_of_json, sha256_of_texts
from pipeline.text import FittedFileError
from pipeline.text.encoders.base import CaptionEncoder, Fitting
from pipeline.text.encoders.options import EncoderOptions
from pipeline.text.encoders.plan_json import plan_of
from pipeline.text.encoders.registry import class_of
from pipeline.text.fitted import ENCODER_FILE, FORMAT, FORMAT_VERSION, read_description

_KEY_DIGITS = 16


def fit_encoder(
    options: EncoderOptions, folder: Path, fitting: Fitting, texts: Sequence[str]
) -> CaptionEncoder:
    """Fit an encoder, or reuse fitted files; return the encoder for `texts`."""
    options = options.completed(fitting.training)
    _claim(folder, _description(options, fitting))
    fitting = replace(fitting, words_of=options.words_of)
    try:
        return class_of(options).fit(options, folder, fitting, options.words_of(texts))
    except BaseException:
        # Nothing was fitted: release the folder, since a corrected command may have other options.
        if [path.name for path in folder.iterdir()] == [ENCODER_FILE]:
            (folder / ENCODER_FILE).unlink()
            folder.rmdir()
        raise


def follow_captions(
    options: EncoderOptions, folder: Path, fitting: Fitting, texts: Sequence[str], features: Path
) -> CaptionEncoder:
    """Return the encoder for the current captions, fitted again if necessary.

    The rows of `features` are then superseded; if the new fit fails, the old encoder stays.
    """
    log, options = fitting.monitor.log, options.completed(fitting.training)
    finish_swap(folder, _is_of_encoder)
    requested = _description(options, fitting)

    def contents(path: Path) -> Contents | None:
        recorded = _record(path)
        # One of other captions is fitted again instead of moved aside.
        if recorded is None or {**recorded, "plan": None} != {**requested, "plan": None}:
            return None
        unlike = first_difference(recorded, requested)
        other = f"was fitted with other options ({unlike}), so all rows are recomputed"
        return sha256_of_json(recorded), unlike and other

    for line in make_way(folder, sha256_of_json(requested), contents):
        log(line)
    reason = stale(folder, encoder_record, lambda: requested)
    new = reason == MISSING
    if not reason and is_superseded(folder, sha256_of_json(requested)):
        reason = "its word vectors have been replaced"
    if new or not reason:
        try:
            return fit_encoder(options, folder, fitting, texts)
        except FittedFileError as error:
            if new:
                raise
            reason = f"it is not usable: {error}"
    log(f"{folder} is out of date ({reason}): it is fitted again, and all rows are recomputed")
    # Fitted in a work folder, which then replaces the old one.
    key = sha256_of_json(requested)[:_KEY_DIGITS]
    work = folder.absolute().parent / WORK_FOLDER / f"{folder.name}-{key}"
    encoder = fit_encoder(options, work, fitting, texts)
    supersede(features)
    swap(work, folder.absolute(), _is_of_encoder)
    forget_superseded(folder)
    for other in work.parent.glob("*.encoder-*"):
        if re.fullmatch(re.escape(folder.name) + r"-[0-9a-f]{16}", other.name):
            shutil.rmtree(other, ignore_errors=True)
    return encoder


def supersede_encoder(folder: Path, features: Path) -> None:
    """Mark an encoder and its rows, which may be missing, as outdated: both are recomputed."""
    supersede(features)
    if (recorded := _record(folder)) is not None:
        mark_superseded(folder, sha256_of_json(recorded))


def encoder_record(folder: Path) -> Record | None:
    """Return the plan of a fitted encoder and the captions of its fit; None if it is missing."""
    return read_description(folder) if (folder / ENCODER_FILE).exists() else None


def _record(folder: Path) -> Record | None:
    with suppress(FittedFileError):
        return encoder_record(folder)
    return None


def _is_of_encoder(path: Path) -> bool:
    return path.suffix in (".json", ".safetensors", ".part")


def _claim(folder: Path, about: dict[str, Any]) -> None:
    """Write the description of a fit to a folder, or raise if it has that of another."""
    reason = stale(folder, encoder_record, lambda: about)
    if reason == MISSING:
        kind = {"format": FORMAT, "format_version": FORMAT_VERSION}
        write_json(folder / ENCODER_FILE, kind | about)
    elif reason:
        raise FittedFileError(
            f"{folder} has another encoder than the requested one: {reason}; `update=True` fits it "
            "again, or choose another folder"
        )


def _description(options: EncoderOptions, fitting: Fitting) -> dict[str, Any]:
    about: dict[str, Any] = {"plan": plan_of(options)}
    if options.fitted_on_captions:
        about["captions"] = len(fitting.training)
        about["captions_sha256"] = sha256_of_texts(fitting.training)
        about |= {"dataset": fitting.dataset, "split": fitting.split}
    return about

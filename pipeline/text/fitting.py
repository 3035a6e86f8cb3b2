"""Fitting of an encoder on the training captions: missing files are fitted, others reused."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.store.files import write_json
from pipeline.store.hashing import sha256_of_texts
from pipeline.text import FittedFileError
from pipeline.text.encoders.base import CaptionEncoder, Fitting
from pipeline.text.encoders.options import EncoderOptions
from pipeline.text.encoders.plan_json import plan_of
from pipeline.text.encoders.registry import class_of
from pipeline.text.fitted import ENCODER_FILE, FORMAT, FORMAT_VERSION, read_description


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


def description_of(options: EncoderOptions, fitting: Fitting) -> dict[str, Any]:
    """Return the contents of `encoder.json` for an encoder fitted on these captions."""
    return _description(options.completed(fitting.training), fitting)


def _claim(folder: Path, about: dict[str, Any]) -> None:
    """Write the description of a fit to a folder, or raise if it has that of another."""
    if not (folder / ENCODER_FILE).exists():
        kind = {"format": FORMAT, "format_version": FORMAT_VERSION}
        write_json(folder / ENCODER_FILE, kind | about)
        return
    if unlike := differences(read_description(folder), about):
        raise FittedFileError(
            f"{folder} has an encoder with another plan or other captions: it differs in {unlike}; "
            "`update=True` fits it again, or choose another folder"
        )


def differences(recorded: dict[str, Any], requested: dict[str, Any]) -> str:
    """Return the keys in which two descriptions differ, or those of their plans, with values."""
    keys = sorted({*recorded, *requested})
    unlike = [key for key in keys if recorded.get(key) != requested.get(key)]
    old, new = recorded.get("plan"), requested["plan"]
    if unlike == ["plan"] and isinstance(old, dict):
        unlike = [f"{k} ({old.get(k)!r}, now {v!r})" for k, v in new.items() if old.get(k) != v]
    return ", ".join(unlike)


def _description(options: EncoderOptions, fitting: Fitting) -> dict[str, Any]:
    about: dict[str, Any] = {"plan": plan_of(options)}
    if options.fitted_on_captions:
        about["captions"] = len(fitting.training)
        about["captions_sha256"] = sha256_of_texts(fitting.training)
        about |= {"dataset": fitting.dataset, "split": fitting.split}
    return about

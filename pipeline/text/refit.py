"""Updates of encoders to their captions and options: loaded, restored, or fitted again.

An encoder determines every row, so another encoder invalidates all rows. One that was fitted on
outdated captions is replaced once the new one is complete; one with other options is moved aside,
and restored when those options are requested again.
"""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.store.builder.locking import WORK_FOLDER
from pipeline.store.builder.reuse import supersede
from pipeline.store.current.replace import (
    finish_swap,
    forget_superseded,
    is_superseded,
    mark_superseded,
    move_aside,
    move_back,
    swap,
)
from pipeline.store.hashing import sha256_of_json
from pipeline.text import FittedFileError
from pipeline.text.encoder_plans import EncoderPlan
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.fitted import ENCODER_FILE, read_description
from pipeline.text.fitting import Fitting, description_of, fit_encoder

_KEY_DIGITS = 16


def follow_captions(
    plan: EncoderPlan, folder: Path, fitting: Fitting, texts: Sequence[str], features: Path
) -> CaptionEncoder:
    """Return the plan's encoder for the current captions, fitted again if necessary.

    The rows of `features` are then superseded; if the new fit fails, the old encoder stays.
    """
    finish_swap(folder, _is_of_encoder)
    if not folder.exists():
        _move_back(folder, plan, fitting)
    existed = (folder / ENCODER_FILE).is_file()
    try:
        encoder = fit_encoder(plan, folder, fitting, texts)
        if not is_superseded(folder.resolve(), _key(read_description(folder))):
            return encoder
        reason = "was fitted with word vectors that have been replaced"
    except FittedFileError as error:
        if not (existed or error.differences):
            raise
        if error.differences and not error.of_captions:
            aside = move_aside(folder, _key(read_description(folder)))
            fitting.monitor.log(
                f"{folder} was fitted with other options ({error.differences}): moved aside to "
                f"{aside}; all rows are recomputed"
            )
            _move_back(folder, plan, fitting)
            return fit_encoder(plan, folder, fitting, texts)
        reason = f"is not usable ({error})"
        if error.differences:
            reason = f"has another plan or other captions ({error.differences})"
    fitting.monitor.log(f"{folder} {reason}: it is fitted again, and all rows are recomputed")
    return _fit_again(plan, folder, fitting, texts, features)


def _fit_again(
    plan: EncoderPlan, folder: Path, fitting: Fitting, texts: Sequence[str], features: Path
) -> CaptionEncoder:
    """Fit an encoder in a work folder, then replace the old one."""
    parent, key = folder.absolute().parent / WORK_FOLDER, _key(description_of(plan, fitting))
    work = parent / f"{folder.name}-{key[:_KEY_DIGITS]}"
    encoder = fit_encoder(plan, work, fitting, texts)
    supersede(features)
    swap(work, folder.absolute(), _is_of_encoder)
    forget_superseded(folder.resolve())
    for other in parent.glob("*.encoder-*"):
        if re.fullmatch(re.escape(folder.name) + r"-[0-9a-f]{16}", other.name):
            shutil.rmtree(other, ignore_errors=True)
    return encoder


def supersede_encoder(folder: Path, features: Path) -> None:
    """Mark an encoder and its rows, which may be missing, as outdated: both are recomputed."""
    supersede(features)
    if (description := _described(folder)) is not None:
        mark_superseded(folder, _key(description))


def _move_back(folder: Path, plan: EncoderPlan, fitting: Fitting) -> None:
    if not [*folder.parent.glob("*~*")]:
        return
    requested = description_of(plan, fitting)
    if aside := move_back(folder, _key(requested), lambda path: _described(path) == requested):
        fitting.monitor.log(f"{aside} is the requested encoder: moved back to {folder}")


def _described(folder: Path) -> dict[str, Any] | None:
    try:
        return read_description(folder)
    except FittedFileError:
        return None


def _key(description: dict[str, Any]) -> str:
    return sha256_of_json(description)


def _is_of_encoder(path: Path) -> bool:
    return path.suffix in (".json", ".safetensors", ".part")

"""Updates of encoders to their captions and options: loaded, restored, or fitted again.

An encoder determines every row, so another encoder invalidates all rows. One that was fitted on
outdated captions is replaced once the new one is complete; one with other options is moved aside,
and restored when those options are requested again.
"""

import re
import shutil
from collections.abc import Callable, Sequence
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
from pipeline.text.encoders.base import CaptionEncoder
from pipeline.text.encoders.options import EncoderOptions
from pipeline.text.fitted import ENCODER_FILE, read_description
from pipeline.text.fitting import Fitting, description_of, differences, fit_encoder

_KEY_DIGITS = 16


def follow_captions(
    options: EncoderOptions, folder: Path, fitting: Fitting, texts: Sequence[str], features: Path
) -> CaptionEncoder:
    """Return the encoder for the current captions, fitted again if necessary.

    The rows of `features` are then superseded; if the new fit fails, the old encoder stays.
    """
    log, options = fitting.monitor.log, options.completed(fitting.training)
    finish_swap(folder, _is_of_encoder)
    requested = description_of(options, fitting)
    if not folder.exists():
        _move_back(folder, requested, log)
    reason, recorded = "", _described(folder)
    if recorded is not None and (unlike := differences(recorded, requested)):
        if recorded == {**requested, "plan": recorded.get("plan")}:
            aside = move_aside(folder, _key(recorded))
            log(
                f"{folder} was fitted with other options ({unlike}): moved aside to {aside}; all "
                "rows are recomputed"
            )
            _move_back(folder, requested, log)
        else:
            reason = f"has another plan or other captions ({unlike})"
    elif recorded is not None and is_superseded(folder.resolve(), _key(recorded)):
        reason = "was fitted with word vectors that have been replaced"
    if not reason:
        existed = (folder / ENCODER_FILE).is_file()
        try:
            return fit_encoder(options, folder, fitting, texts)
        except FittedFileError as error:
            if not existed:
                raise
            reason = f"is not usable ({error})"
    log(f"{folder} {reason}: it is fitted again, and all rows are recomputed")
    # Fitted in a work folder, which then replaces the old one.
    work = folder.absolute().parent / WORK_FOLDER / f"{folder.name}-{_key(requested)[:_KEY_DIGITS]}"
    encoder = fit_encoder(options, work, fitting, texts)
    supersede(features)
    swap(work, folder.absolute(), _is_of_encoder)
    forget_superseded(folder.resolve())
    for other in work.parent.glob("*.encoder-*"):
        if re.fullmatch(re.escape(folder.name) + r"-[0-9a-f]{16}", other.name):
            shutil.rmtree(other, ignore_errors=True)
    return encoder


def supersede_encoder(folder: Path, features: Path) -> None:
    """Mark an encoder and its rows, which may be missing, as outdated: both are recomputed."""
    supersede(features)
    if (description := _described(folder)) is not None:
        mark_superseded(folder, _key(description))


def _move_back(folder: Path, requested: dict[str, Any], log: Callable[[str], None]) -> None:
    if aside := move_back(folder, _key(requested), lambda path: _described(path) == requested):
        log(f"{aside} is the requested encoder: moved back to {folder}")


def _described(folder: Path) -> dict[str, Any] | None:
    try:
        return read_description(folder)
    except FittedFileError:
        return None


def _key(description: dict[str, Any]) -> str:
    return sha256_of_json(description)


def _is_of_encoder(path: Path) -> bool:
    return path.suffix in (".json", ".safetensors", ".part")

"""Contact sheets: some frames of a clip as one image, for HTML pages."""

from pathlib import Path

from PIL import Image

from pipeline.clips.clip_file import open_clip
from pipeline.clips.frames import sampled_frames
from pipeline.clips.sampling import Sampling
from pipeline.images.decoding.decode import Decoded, UnusableImage, fault_of_the_system
from pipeline.store.errors import MissingPackage
from pipeline.store.shards.format import UNREADABLE

FRAMES, COLUMNS = 6, 3
"""Number of frames of a sheet, evenly spaced in time, and of columns."""

_CELL, _GAP, _GROUND = 160, 2, (255, 255, 255)


def contact_sheet(path: Path, frames: int = FRAMES, columns: int = COLUMNS) -> Decoded:
    """Return a contact sheet of a clip, mode RGB, or the reason for its absence.

    Frames are at most 160 pixels wide and high; those of a shorter clip are repeated.
    """
    crc32: list[int] = []
    cells: list[Image.Image] = []
    try:
        with open_clip(path, crc32) as clip:
            for frame in sampled_frames(clip, [Sampling(f"even:{frames}")]):
                small = frame.image
                small.thumbnail((_CELL, _CELL), Image.Resampling.BICUBIC)
                cells += [small] * len(frame.times[0])
    except UnusableImage as error:
        return Decoded(None, crc32[0] if crc32 else 0, error.status, str(error))
    except MissingPackage as error:
        return Decoded(None, 0, UNREADABLE, str(error))
    except (OSError, MemoryError) as error:
        raise fault_of_the_system(path, error, "clip") from error
    across, down = (max(sizes) for sizes in zip(*(cell.size for cell in cells), strict=True))
    columns = min(columns, frames)
    rows = -(-frames // columns)
    size = columns * (across + _GAP) - _GAP, rows * (down + _GAP) - _GAP
    sheet = Image.new("RGB", size, _GROUND)
    for k, cell in enumerate(cells):
        sheet.paste(cell, ((k % columns) * (across + _GAP), (k // columns) * (down + _GAP)))
    return Decoded(sheet, crc32[0])

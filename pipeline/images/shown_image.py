"""The image that pages show for a file of a dataset: itself, or what its family of media shows."""

from pathlib import Path

from pipeline.datasets.manifest import Media
from pipeline.images.decoding.decode import Decoded, read_image
from pipeline.store.families import added


def shown_image(path: Path, media: Media, **how: int) -> Decoded:
    """Return the decoded image of a file; for a clip, a contact sheet of its frames.

    `how` is passed to the function that the family of the media registers as `SHOWN`. A file that
    cannot be shown has a status and a reason; only failures of the system raise.
    """
    return read_image(path) if media == "images" else added("SHOWN", media)(path, **how)

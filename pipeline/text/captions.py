"""The captions that a call encodes, and those that it fits the encoder on."""

from dataclasses import dataclass
from pathlib import Path

from pipeline.store.devices import AUTO
from pipeline.store.option_fields import documented, option


@documented
@dataclass(frozen=True)
class Captions:
    """Captions to encode, and the data to fit their encoder on.

    Examples
    --------
    >>> captions = pipeline.Captions(split="train")
    >>> pipeline.encode("data/mine", "data/text/mine/bow", encoder="bow", captions=captions).rows
    80
    """

    split: str | None = option(None, help="Encode only the captions of this split.  [default: all]")
    phrases: bool = option(
        False,
        help="Encode the distinct phrases of the dataset's regions instead of captions, and fit "
        "on them.",
    )
    fit_split: str = option(
        "train", help="Split on which vocabularies, codebooks and components are fitted."
    )
    fitted: str | Path | None = option(
        None, output=True, help="Folder of the fitted files.  [default: OUT.encoder]"
    )
    codebooks: str | Path | None = option(
        None,
        output=True,
        help="Folder of codebooks shared by outputs: loaded if it has them, else fitted and saved.",
    )
    device: str = option(
        AUTO,
        help="Device for --pca: a torch device, or auto for the best of this machine.",
    )
    trained_on: str | None = option(
        None,
        metavar="NAME[, NAME...]",
        help="Training datasets of the model or the word vectors, for the record.  [default: as "
        "in the model's card or tag]",
    )

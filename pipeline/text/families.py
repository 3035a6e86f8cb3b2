"""Datasets that share pictures or captions, known by their names in model cards and here.

Who trains an encoder says what on; who measures with it must know whether that holds the pictures
or captions that are measured. Names are all that is known of either, so names decide.
"""

import re
from collections.abc import Iterable

_FLICKR, _COCO = "Flickr30k", "COCO"

FAMILIES = {
    _FLICKR: re.compile(r"flickr[ _-]?(30|8)k|(^|[^a-z])(all-?nli|snli)([^a-z]|$)", re.IGNORECASE),
    _COCO: re.compile(r"(^|[^a-z])((ms|ref)?coco|visual[ _-]?genome)([^a-z]|$)", re.IGNORECASE),
}
"""What the names of a family's datasets have in common.

Flickr30k
    Flickr8k's photos are among Flickr30k's (Young et al. 2014), and Flickr30k's captions are the
    premises of SNLI (Bowman et al. 2015), which is a half of AllNLI.
COCO
    Half of Visual Genome's photos are COCO's (Krishna et al. 2017).
"""


def families_of(text: str) -> list[str]:
    """Return the names of the families that a text names, in the order of `FAMILIES`."""
    return [family for family, names in FAMILIES.items() if names.search(text)]


def seen_of(dataset: str, trained_on: Iterable[str]) -> list[str]:
    """Return the names, of those that an encoder was trained on, that share data with a dataset.

    Parameters
    ----------
    dataset : its name, such as "flickr8k" or "my-coco-photos".
    trained_on : names of datasets, as a model card has them.
    """
    own = {*families_of(dataset)}
    return [name for name in trained_on if own & {*families_of(name)}]

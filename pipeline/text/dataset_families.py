"""Families of datasets that share images or captions, recognised by name in model cards.

An evaluation must state whether an encoder was trained on the images or captions it is evaluated
on. Only names are known of both, so names decide.
"""

import re
from collections.abc import Iterable

_FLICKR, _COCO = "Flickr30k", "COCO"

FAMILIES = {
    _FLICKR: re.compile(r"flickr[ _-]?(30|8)k|(^|[^a-z])(all-?nli|snli)([^a-z]|$)", re.IGNORECASE),
    _COCO: re.compile(r"(^|[^a-z])((ms|ref)?coco|visual[ _-]?genome)([^a-z]|$)", re.IGNORECASE),
}
"""Pattern of the dataset names in each family.

Flickr30k
    Flickr8k's images are part of Flickr30k (Young et al. 2014), and Flickr30k's captions are the
    premises of SNLI (Bowman et al. 2015), half of AllNLI.
COCO
    Half of Visual Genome's images are COCO's (Krishna et al. 2017).
"""


def families_of(text: str) -> list[str]:
    """Return the families that a text names, in the order of `FAMILIES`."""
    return [family for family, names in FAMILIES.items() if names.search(text)]


def seen_of(dataset: str, trained_on: Iterable[str]) -> list[str]:
    """Return the names of an encoder's training datasets that share data with a dataset."""
    families = {*families_of(dataset)}
    return [name for name in trained_on if families & {*families_of(name)}]

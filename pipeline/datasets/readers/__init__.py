"""Readers of published datasets, and of a folder with a table, each into a `Manifest`.

A reader is a function `read_x(root, ..., *, expect=None) -> Manifest` in a module of its own. It is
listed in `READERS`; in another package it is an entry point `x` of the group
`caption_feature_pipeline.readers`. Its command `pipeline prepare x`, with options and help, follows
from the signature and the docstring. Read `karpathy` first, then `collector` with the checks that
all share. `folder` reads a table of paths and captions (`tables`) or a folder of images, whose rows
`join_rows` joins.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from pipeline.store.registry import Registry

if TYPE_CHECKING:
    from pipeline.datasets.manifest import Manifest

_BUILTIN = {
    "coco": "pipeline.datasets.readers.coco:read_coco",
    "entities": "pipeline.datasets.readers.entities:read_entities",
    "flickr8k": "pipeline.datasets.readers.flickr8k:read_flickr8k",
    "karpathy": "pipeline.datasets.readers.karpathy:read_karpathy",
    "msrvtt": "pipeline.datasets.readers.msrvtt:read_msrvtt",
    "msvd": "pipeline.datasets.readers.msvd:read_msvd",
    "regions": "pipeline.datasets.readers.region_table:read_regions",
    "trecvid-vtt": "pipeline.datasets.readers.trecvid_vtt:read_trecvid_vtt",
}
READERS: "Registry[Callable[..., Manifest]]" = Registry(
    "readers", "pipeline.datasets.readers:READERS", _BUILTIN, "a function", callable
)
"""The readers by the name of their command, and guests."""

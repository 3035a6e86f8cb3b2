"""Rows of a set that belong to a split of a dataset."""

from collections.abc import Sequence

from pipeline.datasets.manifest import Manifest
from pipeline.store.shards.feature_set import MissingRows
from pipeline.store.shards.row_images import images_of_rows


def ids_of_split(ids: Sequence[str], dataset: Manifest, split: str) -> list[str]:
    """Return the row ids of a split, in the set's order.

    Parameters
    ----------
    ids : sequence of str. All row ids of a set of images, captions or regions.
    dataset : Manifest. The prepared dataset.
    split : str. Name of the split.

    Raises
    ------
    MissingRows
        No row of the split, or an image or all captions of an image are missing.
    DatasetError
        The dataset or split does not exist.
    """
    entries = dataset.select(split)
    wanted, images = {*entries.ids}, {*dataset.select().ids}
    chosen: list[str] = []
    with_rows: set[str] = set()
    kinds: set[str] = set()
    for row_id, (image, kind, _) in zip(ids, images_of_rows(ids, images), strict=True):
        if image in wanted:
            chosen.append(row_id)
            with_rows.add(image)
            kinds.add(kind)
    lacking = [
        image
        for image, captions in zip(entries.ids, entries.num_captions.tolist(), strict=True)
        if image not in with_rows and ("" in kinds or ("#" in kinds and captions))
    ]
    if lacking or not chosen:
        lacking = lacking or [*entries.ids]
        raise MissingRows(
            f"the set has no row for {len(lacking)} of the {len(wanted)} {dataset.media} of the "
            f"split {split!r} of {dataset.name!r}, first {lacking[:5]}; it holds {len(ids)} rows, "
            f"such as {ids[0]!r}: name the dataset and split of these features, or pass the ids"
        )
    return chosen

"""Names of datasets that share pictures or captions, as model cards and tags spell them."""

import pytest

from pipeline.images.networks.hub import datasets_in_tag
from pipeline.text.dataset_families import families_of, seen_of


@pytest.mark.parametrize(
    ("dataset", "names", "seen"),
    [
        ("flickr8k", ["embedding-data/flickr30k-captions", "COCO"], [0]),
        ("flickr30k", ["x/all-nli", "Flickr 30K", "snli", "multi_nli"], [0, 1, 2]),
        ("my-COCO_2017", ["mscoco_captions", "Visual Genome", "s2orc", "coconut"], [0, 1]),
        ("scenes", ["flickr30k", "coco"], []),
        ("coco", ["ImageNet-1k", "LAION-2B"], []),
    ],
)  # fmt: skip
def test_what_shares_data_with_a_dataset(dataset: str, names: list[str], seen: list[int]) -> None:
    assert seen_of(dataset, names) == [names[at] for at in seen]


def test_families_in_a_text() -> None:
    assert families_of("Trained on COCO, Flickr-30k and SNLI.") == ["Flickr30k", "COCO"]
    assert families_of("cocoa; snlice; flickr") == []


@pytest.mark.parametrize(
    ("tag", "datasets"),
    [
        ("tv2_in1k", ("ImageNet-1k",)),
        ("clip_laion2b_augreg_ft_in12k_in1k_384", ("ImageNet-1k", "ImageNet-12k", "LAION-2B")),
        ("mscoco_finetuned_laion2b_s13b_b90k", ("LAION-2B", "COCO captions")),
        ("openai", ("WebImageText",)),
        ("datacomp_xl_s13b_b90k", ("DataComp",)),
        ("min1k", ()),
        ("", ()),
    ],
)
def test_tags_name_datasets(tag: str, datasets: tuple[str, ...]) -> None:
    assert datasets_in_tag(tag) == datasets

"""Wang, Li & Lazebnik 2016, section 3.3: phrases and regions, with and without mined boxes."""

from dataclasses import replace

from pipeline.heads.architectures.two_branch import TwoBranchSettings
from pipeline.heads.presets.preset import GOOGLENEWS, Changes, Preset, features, with_settings
from pipeline.heads.presets.wang import CCA

_FISHER_1000 = features("phrases-fv-hglmm-pca1000", "fv-hglmm", sample=20_000, pca=1000)
_OPEN = (
    "region features are those of the recipe's network on the box alone, in the paper of Fast "
    "R-CNN tuned on VOC; all annotated pairs of a batch match, including those beyond the limit "
    "of ten regions per phrase; the epoch is selected by validation R@1 + R@5 + R@10"
)
# A batch of 1,500 out of some 10,000 pairs would mean too few updates.
_SMALL = {"hidden": 1024, "dim": 256, "batch_size": 300}
_TINY = {"hidden": 256, "dim": 64, "batch_size": 300}
_A = Preset(
    "two-branch",
    TwoBranchSettings(hidden=8192, dim=4096, epochs=28, structure_weight=0.0),
    "vgg19-fc7",
    features("phrases-fv-hglmm-pca6000", "fv-hglmm", vectors=GOOGLENEWS, pca=6000),
    source="Wang, Li & Lazebnik 2016, section 3.3 and table 3",
    leaves_open=_OPEN,
    of_phrases=True,
    small=Changes({**_SMALL, "epochs": 24, "lr_decay_every": 10}, _FISHER_1000),
    tiny={**_TINY, "epochs": 16},
)
# Continues one of the models a to d with mined boxes, by eq. (1) and (2) only.
_MINED = replace(
    with_settings(_A, epochs=5, lr_decay_every=5, mined_each=50),
    leaves_open=f"{_OPEN}; the learning rate restarts at the initial value of the previous model, "
    "since mined boxes have no effect at its final value; 50 of a phrase's mined boxes are sampled "
    "in each batch with the phrase; boxes that overlap a true box of the phrase by half or more "
    "are not mined",
    small=Changes({**_SMALL, "epochs": 10}, _FISHER_1000),
    tiny=_TINY,
)

PRESETS = {
    "wang2016-phrases-cca": replace(
        CCA,
        images=_A.images,
        captions=_A.captions,
        source="Wang, Li & Lazebnik 2016, table 3, after Plummer et al. 2015",
        leaves_open=f"{CCA.leaves_open}; region features are those of the recipe's network on the "
        "box alone",
        of_phrases=True,
        small=replace(CCA.small, captions=_FISHER_1000),
    ),
    "wang2016-phrases-a": _A,
    "wang2016-phrases-b": with_settings(_A, structure_weight=0.1),
    "wang2016-phrases-c": with_settings(_A, image_structure_weight=0.1),
    "wang2016-phrases-d": with_settings(_A, image_structure_weight=0.1, structure_weight=0.1),
    "wang2016-phrases-a-mined": replace(_MINED, goes_on_from="wang2016-phrases-a"),
    "wang2016-phrases-a-longer": replace(
        with_settings(_MINED, mined_each=0),
        goes_on_from="wang2016-phrases-a",
        source="not published; wang2016-phrases-a-mined without mined boxes, for comparison",
        leaves_open=_OPEN,
    ),
    "wang2016-phrases-b-mined": replace(_MINED, goes_on_from="wang2016-phrases-b"),
    "wang2016-phrases-c-mined": replace(_MINED, goes_on_from="wang2016-phrases-c"),
    "wang2016-phrases-d-mined": replace(_MINED, goes_on_from="wang2016-phrases-d"),
    "wang2016-phrases-d-mined-structure": replace(
        with_settings(_MINED, image_structure_weight=0.1, structure_weight=0.1),
        goes_on_from="wang2016-phrases-d",
        source="Wang, Li & Lazebnik 2016, section 3.3, which excludes structure terms here",
    ),
}

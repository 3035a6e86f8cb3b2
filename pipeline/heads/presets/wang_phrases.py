"""Wang, Li & Lazebnik 2016, section 3.3: phrases and regions, with mined boxes and without."""

from dataclasses import replace

from pipeline.heads.architectures.two_branch import TwoBranchSettings
from pipeline.heads.presets.preset import GOOGLENEWS, Changes, Preset, features, with_settings
from pipeline.heads.presets.wang import CCA

_FISHER_1000 = features("phrases-fv-hglmm-pca1000", "fv-hglmm", sample=20_000, pca=1000)
_OPEN = (
    "regions: the recipe's network on the box alone, there Fast R-CNN tuned on VOC; all annotated "
    "pairs of a batch match, those too that the limit of ten regions a phrase leaves out; the "
    "epoch is chosen by R@1 + R@5 + R@10 of the validation split"
)
# A batch of 1,500 of some 10,000 pairs would make too few updates.
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
# Goes on from one of the models a to d with mined boxes, by eq. (1) and (2) alone.
_MINED = replace(
    with_settings(_A, epochs=5, lr_decay_every=5, mined_each=50),
    leaves_open=f"{_OPEN}; the rate is the one that the model before starts with, since at the one "
    "that it ends with mined boxes change nothing; of the boxes mined for a phrase 50 are drawn in "
    "each batch that has it; a box that overlaps a true box of its phrase by half or more is not "
    "mined",
    small=Changes({**_SMALL, "epochs": 10}, _FISHER_1000),
    tiny=_TINY,
)

PRESETS = {
    "wang2016-phrases-cca": replace(
        CCA,
        images=_A.images,
        captions=_A.captions,
        source="Wang, Li & Lazebnik 2016, table 3, after Plummer et al. 2015",
        leaves_open=f"{CCA.leaves_open}; regions: the recipe's network on the box alone",
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
        source="no paper's; wang2016-phrases-a-mined without its mined boxes, to compare with",
        leaves_open=_OPEN,
    ),
    "wang2016-phrases-b-mined": replace(_MINED, goes_on_from="wang2016-phrases-b"),
    "wang2016-phrases-c-mined": replace(_MINED, goes_on_from="wang2016-phrases-c"),
    "wang2016-phrases-d-mined": replace(_MINED, goes_on_from="wang2016-phrases-d"),
}

"""Lee et al. 2018: stacked cross attention (SCAN), both directions and both poolings."""

from pipeline.heads.architectures.scan import ScanSettings
from pipeline.heads.presets.preset import TOKEN_IDS, Changes, Preset, with_settings

_SCAN = Preset(
    "scan",
    ScanSettings(),
    "resnet152-grid",
    TOKEN_IDS,
    source="Lee et al. 2018 (SCAN), the published program for Flickr30K, text to image",
    leaves_open="grid cells in place of detected regions, as in the baseline of Yan 2019",
    small=Changes(
        {
            "dim": 256, "batch_size": 64, "learning_rate": 0.002, "lr_decay_every": 5,
            "mean_hinge_epochs": 1, "epochs": 8,
        },
        images="efficientnet-lite0-grid",
    ),
)  # fmt: skip

PRESETS = {
    name: with_settings(_SCAN, similarity=name)
    for name in ("scan-t2i-avg", "scan-t2i-lse", "scan-i2t-avg", "scan-i2t-lse")
}

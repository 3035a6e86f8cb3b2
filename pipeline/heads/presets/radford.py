"""Radford et al. 2021: CLIP, zero-shot."""

from pipeline.heads.architectures.zero_shot import ZeroShotSettings
from pipeline.heads.presets.preset import Changes, Preset, features

_CLIP = "open-clip:ViT-B-32.laion2b_s34b_b79k"

PRESETS = {
    "zero-shot": Preset(
        "zero-shot",
        ZeroShotSettings(),
        _CLIP,
        features(_CLIP),
        source="Radford et al. 2021 (CLIP), section 3.1",
        leaves_open="weights are those of LAION-2B, since OpenAI did not publish the training data "
        "of theirs; captions are encoded without a prompt",
        small=Changes(images=_CLIP),
    ),
}

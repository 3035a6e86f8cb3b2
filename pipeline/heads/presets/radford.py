"""Radford et al. 2021: CLIP, whose two networks are used as they are trained."""

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
        leaves_open="the weights: those of LAION-2B, since OpenAI did not say what theirs have "
        "seen; captions are taken as they are, without a prompt before them",
        small=Changes(images=_CLIP),
    ),
}

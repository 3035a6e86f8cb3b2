"""Small models of open_clip, one of each kind that its own have."""

import json
from pathlib import Path
from typing import Any

from pipeline.images.networks.open_clip_models import open_clip

_TEXT = {"context_length": 20, "width": 16, "heads": 2, "layers": 2}
_VIT = {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8}
_TIMM = {"image_size": 64, "timm_proj": "linear", "timm_pool": ""}

TINY: dict[str, dict[str, Any]] = {
    # OpenAI's CLIP: a causal text tower, the row of the end mark.
    "tiny-vit": {"embed_dim": 16, "quick_gelu": True, "vision_cfg": _VIT, "text_cfg": _TEXT},
    "tiny-rn": {
        "embed_dim": 16,
        "vision_cfg": {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8},
        "text_cfg": _TEXT,
    },
    "tiny-convnext": {
        "embed_dim": 16,
        "vision_cfg": {**_TIMM, "timm_model_name": "test_convnext"},
        "text_cfg": _TEXT,
    },
    # SigLIP: timm's transformer, every token sees all others, the row of the last one.
    "tiny-sigmoid": {
        "embed_dim": 16,
        "custom_text": True,
        "init_logit_bias": -10,
        "vision_cfg": {
            "image_size": 160,
            "timm_model_name": "test_vit",
            "timm_pool": "avg",
            "timm_proj": "linear",
        },
        "text_cfg": {**_TEXT, "no_causal_mask": True, "pool_type": "last", "proj_bias": True},
    },
    # PE and multilingual CLIP: a text tower of its own, causal, the row of a certain token.
    "tiny-custom": {
        "embed_dim": 16,
        "custom_text": True,
        "vision_cfg": _VIT,
        "text_cfg": {**_TEXT, "pool_type": "eos", "eos_id": 49407},
    },
    # CoCa: a mark behind the tokens, towers that give tokens too.
    "tiny-coca": {
        "embed_dim": 16,
        "custom_text": True,
        "vision_cfg": {
            **_VIT,
            "attentional_pool": True,
            "attn_pooler_heads": 2,
            "attn_pooler_queries": 4,
            "output_tokens": True,
        },
        "text_cfg": {**_TEXT, "embed_cls": True, "output_tokens": True},
        "multimodal_cfg": {"context_length": 20, "width": 16, "heads": 2, "layers": 1},
    },
}


def add_tiny_models(folder: Path) -> None:
    """Make `TINY` known to open_clip, from files that it reads in `folder`."""
    for name, config in TINY.items():
        if name not in open_clip().list_models():
            (folder / f"{name}.json").write_text(json.dumps(config))
            open_clip().add_model_config(folder / f"{name}.json")

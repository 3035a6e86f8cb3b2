"""The image towers and weights of open_clip."""

from typing import Any

from torch import Tensor, nn

from pipeline.images.backbones.backbone import Backbone
from pipeline.images.backbones.timm_backbones import timm_tracing
from pipeline.images.networks.open_clip_models import cached_weights, find_clip_model
from pipeline.images.networks.open_clip_weights import build_clip, load_clip_weights
from pipeline.images.networks.state_dicts import Weights


class _ImageTower(nn.Module):
    """The image tower of a model, under its name in the whole model."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.visual = net.visual

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, dim) embeddings, not L2-normalised, of (n, 3, size, size) crops."""
        output = self.visual(x)
        # CoCa's tower also returns its tokens.
        embedding: Tensor = output[0] if isinstance(output, tuple) else output
        return embedding


def open_clip_backbone(name: str) -> Backbone:
    """Return the image tower of a model of open_clip as a backbone."""
    model = find_clip_model(name)

    def build() -> nn.Module:
        return _ImageTower(build_clip(model))

    # timm implements many of the towers.
    return Backbone(
        build, methods={"embedding": "forward"}, tracing=timm_tracing(), tested=False, load=_load,
        cached=_cached,
    )  # fmt: skip


def _cached(name: str) -> bool:
    model = find_clip_model(name)
    return bool(model.tag) and cached_weights(model) is not None


def _load(name: str, source: str) -> Weights:
    model = find_clip_model(name)
    source = "pretrained" if source == "imagenet" else source
    whole = load_clip_weights(model, source, build_clip(model))
    state = {key: value for key, value in whole.state.items() if key.startswith("visual.")}
    return Weights(whole.name, whole.sha256, state)

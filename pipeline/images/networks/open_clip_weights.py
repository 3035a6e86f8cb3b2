"""Construction of open_clip models, and their weights: published, from a file, or from a seed.

Both towers are loaded together, and the SHA-256 is that of the whole model, so that features of
images and captions can be verified to share one embedding space.
"""

from pathlib import Path
from typing import Any

import torch

from pipeline.images.networks.checkpoints import read_checkpoint, sha256_of_weights
from pipeline.images.networks.open_clip_models import (
    ClipModel,
    fetch_weights,
    open_clip,
    quiet_logging,
)
from pipeline.images.networks.random_weights import seed_of, seeded_state
from pipeline.images.networks.state_dicts import (
    Part,
    State,
    Target,
    Weights,
    WeightsError,
    find_part,
    state_sha256,
)

# Parameters of the training loss, and extra entries of OpenAI's files; features do not need them.
_OF_NO_FEATURE = ("logit_scale", "logit_bias", "input_resolution", "context_length", "vocab_size")


def build_clip(model: ClipModel) -> Any:
    """Return a model on the CPU in evaluation mode, with arbitrary initial weights."""
    library = open_clip()
    # On the CPU, since constants that are not in the state dict are computed at construction.
    with torch.device("cpu"), quiet_logging():
        try:
            net = library.create_model(model.model, load_weights=False, pretrained_text=False)
        except (OSError, RuntimeError, ImportError) as error:
            raise WeightsError(
                f"open_clip cannot build {model.architecture} ({str(error).partition(chr(10))[0]})"
                "; its text tower may be a model of the hub, which needs the package transformers "
                "and the model's configuration, from the cache of huggingface_hub or the network"
            ) from error
    return net.eval().requires_grad_(False)


def load_clip_weights(model: ClipModel, source: str, net: Any) -> Weights:
    """Load the weights of both towers; `net`, from `build_clip`, is not modified.

    `source` is "pretrained" (of the model's tag), "random:SEED", or the path of a `.pth`, `.pt`,
    `.bin` or `.safetensors` file from open_clip's training or its hub repositories.
    """
    if source.startswith("random:"):
        # The last norms of a ResNet's residual branches; other towers have no such names.
        state = _of_features(seeded_state(net, seed_of(source), ".bn3"))
        return Weights(source, state_sha256(state), state)
    published = source == "pretrained"
    try:
        path = fetch_weights(model) if published else Path(source)
    except OSError as error:
        message = f"{error}; or use random:SEED for a trial with random weights"
        raise WeightsError(message) from error
    if not path.exists():
        raise WeightsError(
            f"no weights file {source!r}; pass the path of a .pth, .pt, .bin or .safetensors file, "
            "random:SEED, or a tag of published weights in the model's name"
        )
    name = model.name if published else f"file:{path.name}"
    return Weights(name, sha256_of_weights(path), *_read(path, model, net))


def _read(path: Path, model: ClipModel, net: Any) -> Part:
    library, expected = open_clip(), _of_features(net.state_dict())

    def named(tensors: State) -> State:
        tensors = library.convert.convert_state_dict(net, tensors)
        if "positional_embedding" in tensors and not hasattr(net, "positional_embedding"):
            tensors = library.model.convert_to_custom_text_state_dict(tensors)
        # Numbers 0, 1, ..., which older files of text models contain.
        return {
            key: value
            for key, value in _of_features(tensors).items()
            if key in expected or not key.endswith("position_ids")
        }

    target = Target(model.architecture, expected, named, expected.keys)
    return find_part(read_checkpoint(path), path, target)


def _of_features(state: State) -> State:
    return {key: value for key, value in state.items() if key not in _OF_NO_FEATURE}

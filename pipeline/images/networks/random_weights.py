"""Random weights from a seed, scaled so that activations stay bounded at any depth."""

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.images.networks import WeightsError

# Scale of the last batch norm of every residual branch, without which fifty branches would double
# the variance fifty times.
_RESIDUAL_SCALE = 0.2


def seed_of(source: str) -> int:
    """Return the seed of "random:SEED"."""
    digits = source.removeprefix("random:")
    if not digits.isdecimal():
        raise WeightsError(f"{source!r}: the seed must be an integer, as in random:0")
    return int(digits)


def seeded_state(net: nn.Module, seed: int, residual_norms: str) -> dict[str, Tensor]:
    """Return a state dict of random weights, the same on every machine.

    Weights are normal with variance 2 / fan-in (He et al. 2015). Only names, shapes and constant
    buffers of `net` are read; `residual_norms` is the name suffix of the batch norms that close
    residual branches, or "".
    """
    # numpy's PCG64, whose stream does not depend on the machine or the version of torch.
    rng = np.random.default_rng(seed)

    def normal(shape: torch.Size, scale: float, around: float = 0.0) -> Tensor:
        values = rng.standard_normal(tuple(shape), dtype=np.float32)
        return torch.from_numpy(np.asarray(values * np.float32(scale) + np.float32(around)))

    state: dict[str, Tensor] = {}
    for name, module in net.named_modules():
        if isinstance(module, nn.BatchNorm2d | nn.BatchNorm3d):
            # Varied scales, offsets and statistics, so that wrong folding is detected.
            shape = module.running_mean.shape  # type: ignore[union-attr]
            closes = bool(residual_norms) and name.endswith(residual_norms)
            state[f"{name}.weight"] = normal(shape, 0.1, 1.0) * (_RESIDUAL_SCALE if closes else 1)
            state[f"{name}.bias"] = normal(shape, 0.1)
            state[f"{name}.running_mean"] = normal(shape, 0.1)
            state[f"{name}.running_var"] = normal(shape, 0.1, 1.0).abs()
            state[f"{name}.num_batches_tracked"] = torch.zeros((), dtype=torch.long)
        elif isinstance(module, nn.Conv2d | nn.Conv3d | nn.Linear):
            shape = module.weight.shape
            fan_in = shape[1:].numel()
            state[f"{name}.weight"] = normal(shape, (2.0 / fan_in) ** 0.5)
            if module.bias is not None:
                state[f"{name}.bias"] = normal(module.bias.shape, 0.1)
    # Further parameters of timm's models: scales of other norms, embeddings, tokens.
    for key, value in net.named_parameters():
        if key not in state:
            is_scale = value.ndim == 1 and key.endswith("weight")
            # Queries and keys of 0.1 would saturate the softmax of wide networks.
            scale = (2.0 / value.shape[1]) ** 0.5 if key.endswith("in_proj_weight") else 0.1
            state[key] = normal(value.shape, scale, 1.0 if is_scale else 0.0)
    return state | {k: v.clone() for k, v in net.state_dict().items() if k not in state}

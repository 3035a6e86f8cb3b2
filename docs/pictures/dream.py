"""Draw dreams of an image, minus a word, plus another: Dong et al. 2018, figure 5 (b).

Run as `python docs/pictures/dream.py EXPERIMENT DATASET IMAGE MINUS PLUS OUT.jpg`, with an
experiment of Word2VisualVec, whose space is that of the image features. From a grey image, gradient
ascent raises the cosine between the feature of the dream and the query; from left to right the
queries are the image itself, the image without the word, and the composed one.
"""

import sys

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

import pipeline
from pipeline.retrieval.composition import compose

STEPS, RATE, SHIFT, LEVELS, SMOOTH = 128, 2.0, 16, 5, 4e-3
"""Steps; grey levels a step; pixels of a random shift; octaves; weight of rough pixels."""


def dream(network: torch.nn.Module, query: torch.Tensor, side: int) -> Image.Image:
    """Return the image whose feature has the direction of a query (dim,)."""
    torch.manual_seed(0)
    # A sum of octaves, so that large shapes are drawn as fast as textures.
    octaves = [torch.randn(1, 3, side >> k, side >> k).requires_grad_() for k in range(LEVELS)]
    optimiser = torch.optim.Adam(octaves, RATE)
    for _ in range(STEPS):
        optimiser.zero_grad()
        pixels = 128 + sum(F.interpolate(o, side, mode="bilinear") for o in octaves)
        shift = torch.randint(-SHIFT, SHIFT + 1, (2,)).tolist()
        windows = pixels.roll(shift, (2, 3)).clamp(0, 255).permute(0, 2, 3, 1)[None]
        rough = pixels.diff(dim=2).abs().mean() + pixels.diff(dim=3).abs().mean()
        (SMOOTH * rough - F.cosine_similarity(network(windows)[0], query, dim=0)).backward()
        optimiser.step()
    return Image.fromarray(pixels.detach().clamp(0, 255).byte()[0].permute(1, 2, 0).numpy())


def main() -> None:
    """Write the three dreams side by side."""
    experiment, dataset, image, minus, plus, out = sys.argv[1:]
    searcher = pipeline.open_searcher(experiment, dataset)
    own = searcher.embedded.stored(image)[0]
    words = searcher.models.embed_sentences([minus, plus], print)
    queries = [own, *(compose(own, words[:1], words[1:k], unit=False) for k in (1, 2))]
    encoder = pipeline.encoder(searcher.models.head.inputs.images.name, engine="reference")
    side = encoder.preprocess(np.zeros((64, 64, 3), np.uint8)).shape[1]
    dreams = [dream(encoder.network, torch.from_numpy(query), side) for query in queries]
    strip = Image.new("RGB", (len(dreams) * side, side))
    for at, picture in enumerate(dreams):
        strip.paste(picture, (at * side, 0))
    strip.save(out)


if __name__ == "__main__":
    main()

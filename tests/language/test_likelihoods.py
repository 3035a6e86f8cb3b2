"""Likelihoods of all pairs against single words one by one, and the ranks that they make."""

import numpy as np
import pytest
import torch

from pipeline.language.embed_by_likelihood import likelihood_embeddings, log_likelihoods
from pipeline.retrieval.ranking.recall import recall_table
from tests.language.test_models import (
    SENTENCES,
    TAGGED,
    conditions,
    log_probabilities,
    model,
    tags_for,
)

CONDITIONED = [
    "additive-lbl", "multiplicative-lbl", "sc-nlm", "lstm-decoder", "attention-decoder",
]  # fmt: skip


@pytest.mark.parametrize("name", CONDITIONED)
def test_every_pair_is_the_sum_of_its_words(name: str) -> None:
    net, given = model(name), conditions(4, name)
    tags = tags_for(name)
    found = log_likelihoods(
        net, given.numpy(), SENTENCES.numpy(), None if tags is None else tags.numpy()
    )
    for image in range(4):
        for row, sentence in enumerate(SENTENCES.tolist()):
            words = sentence[: sentence.index(3) + 1]
            total = 0.0
            for at in range(1, len(words)):
                before = torch.tensor([words[:at]])
                own = None if tags is None else TAGGED[row : row + 1]
                log_p = log_probabilities(net, before, given[image : image + 1], own)
                total += float(log_p[0, words[at]])
            assert found[image, row] == pytest.approx(total, rel=1e-9)


def test_ranks_are_those_of_likelihood_over_its_mean() -> None:
    rng = np.random.default_rng(0)
    likelihoods, prior = rng.normal(-20, 3, (5, 10)), rng.normal(-20, 3, (7, 10))
    ids, owners = [f"i{k}" for k in range(5)], np.repeat(np.arange(5), 2)
    captions = [f"c{k}" for k in range(10)]
    found = likelihood_embeddings(likelihoods, prior, ids, captions, [ids[k] for k in owners], {})
    ratio = likelihoods - np.log(np.exp(prior).mean(axis=0))
    np.testing.assert_allclose(
        found.image_embeddings @ found.caption_embeddings.T, ratio, rtol=1e-5
    )
    first = [owners[int(np.argmax(ratio[k]))] == k for k in range(5)]
    of_captions = [int(np.argmax(likelihoods[:, c])) == owners[c] for c in range(10)]
    table = recall_table(found)
    assert table["image_to_text_r1"] == pytest.approx(100 * np.mean(first))
    # The mean over images is the same for all images: captions rank them by likelihood alone.
    assert table["text_to_image_r1"] == pytest.approx(100 * np.mean(of_captions))

"""Features of pictures by several networks side by side are the rows that their shards have."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.heads.inputs.feature_spec import FeatureSpec
from pipeline.images.batches import Parallelism, feature_header
from pipeline.images.network import RecipeNetwork
from pipeline.images.recipes import resolve_recipe
from pipeline.images.weights import load_weights
from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.query.picture_features import open_features
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.side_by_side import write_view
from tests.retrieval.query.factories import ENTRIES, FILES
from tests.store.jobs.factories import publish_images


@pytest.fixture(scope="module")
def beside(made: Path) -> FeatureSet:
    """Features of ten crops, beside those of the package's fixture."""
    recipe = resolve_recipe("efficientnet-lite0-pool-10crop")
    weights = load_weights(recipe)
    header = feature_header(recipe, weights, "made")
    with ShardBuild(made / "crops", header, [e.id for e in ENTRIES]) as build:
        network = RecipeNetwork(recipe, weights.state)
        publish_images(build, [made / file for file in FILES], network, Parallelism(1, 1, 1))
    write_view(made / "view", [FeatureSet(made / name) for name in ("crops", "images")], "unit")
    return FeatureSet(made / "view")


def test_a_picture_has_the_row_of_its_shards(made: Path, beside: FeatureSet) -> None:
    features = open_features(FeatureSpec.of(beside), "this")
    row = features.of(made / FILES[0])
    np.testing.assert_allclose(row, beside.read([ENTRIES[0].id]), atol=1e-4)
    assert np.linalg.norm(row[0]) == pytest.approx(2**0.5, abs=1e-4)


def test_other_weights_are_refused(beside: FeatureSet) -> None:
    with pytest.raises(EmbeddingsError, match="cannot replace the weights of all"):
        open_features(FeatureSpec.of(beside), "this", "random:1")

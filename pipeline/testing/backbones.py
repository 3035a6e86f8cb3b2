"""What every network of another package promises."""

import numpy as np

from pipeline.images.backbones.image_network import ImageNetwork
from pipeline.images.feature_extractor import FeatureExtractor
from pipeline.images.recipes import resolve_recipe
from pipeline.images.recipes.by_name import PROVIDERS


class BackboneSuite:
    """Tests of a network; its fixture `case` is the name of the backbone."""

    weights = "random:0"  # of the tests; "imagenet" loads the network's own

    def test_each_declared_layer_has_its_declared_shape(self, case: str) -> None:
        network = PROVIDERS.get(case)
        assert isinstance(network, ImageNetwork)
        image = np.random.default_rng(0).integers(0, 255, (60, 40, 3), np.uint8)
        for layer in network.layers:
            name = f"{case}@{layer}"
            row = FeatureExtractor(name, weights=self.weights)(image)
            assert (row.shape, row.dtype) == (resolve_recipe(name).shape, np.float32)
            assert np.isfinite(row).all()

    def test_a_row_depends_on_its_image_alone(self, case: str) -> None:
        images = np.random.default_rng(1).integers(0, 255, (3, 50, 50, 3), np.uint8)
        extractor = FeatureExtractor(case, weights=self.weights)
        together = extractor([*images])
        again = FeatureExtractor(case, weights=self.weights)
        for image, row in zip(images, together, strict=True):
            np.testing.assert_allclose(again(image), row, rtol=1e-4, atol=1e-5)
        assert not np.array_equal(together[0], together[1])

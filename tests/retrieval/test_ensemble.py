"""An ensemble's scores are the weighted means of its members' cosines."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.retrieval import EmbeddingsError
from pipeline.retrieval.csls import Reference
from pipeline.retrieval.embedding_file import read_embeddings, write_embeddings
from pipeline.retrieval.embeddings import Embeddings
from pipeline.retrieval.ensemble import average, ensemble
from pipeline.retrieval.similarity import SIMILARITIES
from pipeline.store.hashing import sha256_of_file

IMAGES = ("a", "b", "c")
OWNERS = ("a", "a", "b", "c", "b")
CAPTIONS = tuple(f"{image}#{k}" for k, image in enumerate(OWNERS))


def member(dim: int, seed: int) -> Embeddings:
    rng = np.random.default_rng(seed)
    rows = (rng.standard_normal((8, dim)) * rng.uniform(0.1, 9, (8, 1))).astype(np.float32)
    return Embeddings(IMAGES, rows[:3], CAPTIONS, OWNERS, rows[3:], "cosine", {"seed": seed})


def cosines(e: Embeddings) -> np.ndarray:
    s = SIMILARITIES[e.similarity]
    return s.between(s.prepare(e.image_embeddings), s.prepare(e.caption_embeddings))


def shuffled(e: Embeddings) -> Embeddings:
    rows, columns = [2, 0, 1], [4, 2, 0, 3, 1]
    return replace(
        e,
        image_ids=tuple(e.image_ids[r] for r in rows),
        image_embeddings=e.image_embeddings[rows],
        caption_ids=tuple(e.caption_ids[c] for c in columns),
        caption_image_ids=tuple(e.caption_image_ids[c] for c in columns),
        caption_embeddings=e.caption_embeddings[columns],
    )


def test_cosines_are_averaged_whatever_the_order_of_rows() -> None:
    one, two, three = member(4, 0), member(7, 1), member(1, 2)
    joined = average([one, shuffled(two), three], [1, 2, 3])
    expected = (cosines(one) + 2 * cosines(two) + 3 * cosines(three)) / 6
    np.testing.assert_allclose(cosines(joined), expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(joined.image_embeddings, axis=1), 1, atol=1e-6)
    assert joined.caption_ids == CAPTIONS
    assert [member["seed"] for member in joined.provenance["ensemble"]] == [0, 1, 2]
    equal = average([one, two])
    np.testing.assert_allclose(cosines(equal), (cosines(one) + cosines(two)) / 2, atol=1e-6)


def test_corrected_cosines_are_averaged() -> None:
    reference = Reference(*(member(4, seed).caption_embeddings for seed in (5, 6)))
    one, two = member(4, 0), member(7, 1)
    corrected = replace(
        one,
        image_embeddings=reference.extended(one.image_embeddings, "images"),
        caption_embeddings=reference.extended(one.caption_embeddings, "captions"),
        similarity="dot",
        provenance={"csls": "train"},
    )
    joined = average([corrected, two], [3, 1])
    expected = (3 * cosines(corrected) + cosines(two)) / 4
    np.testing.assert_allclose(cosines(joined), expected, atol=1e-6)


def test_files_become_one_that_names_its_members(tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.h5" for name in ("one", "two")}
    members = [member(4, 0), shuffled(member(7, 1))]
    for path, embeddings in zip(files.values(), members, strict=True):
        write_embeddings(path, embeddings)
    joined = ensemble(files, str(tmp_path / "both.h5"), weights={"two": 3, "one": 1})
    found = read_embeddings(tmp_path / "both.h5")
    expected = average(members, [1, 3])
    np.testing.assert_array_equal(found.image_embeddings, expected.image_embeddings)
    np.testing.assert_array_equal(found.caption_embeddings, expected.caption_embeddings)
    assert found.provenance == joined.provenance
    assert found.provenance["experiment"] == "both"
    assert found.provenance["members"] == {
        name: {"embeddings_sha256": sha256_of_file(path)} for name, path in files.items()
    }
    with pytest.raises(EmbeddingsError, match="found weights for one, but the members are one"):
        ensemble(files, tmp_path / "none.h5", weights={"one": 1})
    with pytest.raises(EmbeddingsError, match="not found, expected an embedding file"):
        ensemble({**files, "three": tmp_path / "three.h5"}, tmp_path / "none.h5")
    assert not (tmp_path / "none.h5").exists()


def test_a_zero_row_has_cosine_zero_in_its_member() -> None:
    one, two = member(4, 0), member(4, 1)
    one.image_embeddings[1] = 0
    found = cosines(average([one, two]))
    np.testing.assert_allclose(found[1], cosines(two)[1] / 2, atol=1e-6)
    np.testing.assert_allclose(found[0], (cosines(one) + cosines(two))[0] / 2, atol=1e-6)


@pytest.mark.parametrize(
    ("members", "weights", "expected"),
    [
        ([member(4, 0)], None, "at least two members"),
        ([member(4, 0), member(4, 1)], [1.0], "a weight above 0 for each"),
        ([member(4, 0), member(4, 1)], [1.0, 0.0], "a weight above 0 for each"),
        ([member(4, 0), replace(member(4, 1), similarity="dot")], None, "only cosines"),
        (
            [member(4, 0), replace(member(4, 1), caption_ids=(*CAPTIONS[:4], "z"))],
            None,
            "2 ids are not in both, first .'b#4', 'z'",
        ),
        (
            [member(4, 0), replace(member(4, 1), caption_image_ids=("a", "a", "b", "c", "c"))],
            None,
            "other images for its captions",
        ),
    ],
)
def test_what_cannot_be_averaged_is_refused(
    members: list[Embeddings], weights: list[float] | None, expected: str
) -> None:
    with pytest.raises(EmbeddingsError, match=expected):
        average(members, weights)

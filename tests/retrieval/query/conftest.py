"""One folder with features and a fitted head for all tests of queries."""

from pathlib import Path

import pytest

from tests.retrieval.query.factories import fill


@pytest.fixture(scope="package")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pictures, features of both sides, and the folder `head` of a head fitted on them."""
    folder = tmp_path_factory.mktemp("queries")
    fill(folder)
    return folder

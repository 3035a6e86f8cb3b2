"""A server of S3 for tests, which processes that they start reach by its URL, too."""

import os
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest

_SETTINGS = {
    "AWS_ACCESS_KEY_ID": "name-of-tests",
    "AWS_SECRET_ACCESS_KEY": "secret-of-tests",
    "AWS_DEFAULT_REGION": "us-east-1",
    # Nothing of the account of whoever runs the tests.
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}
_requests: list[tuple[str, str]] = []


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The URL of an empty bucket, for a folder per test: `f"{s3}/name"`."""
    from moto.moto_server import threaded_moto_server as moto

    def note(handler: Any, *_: object) -> None:
        _requests.append((handler.command, handler.path))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moto.MotoRequestHandler, "log_request", note)
        server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        server.start()
        for name, value in _SETTINGS.items():
            patch.setenv(name, value)
        patch.delenv("AWS_PROFILE", raising=False)
        patch.delenv("AWS_SESSION_TOKEN", raising=False)
        patch.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*server.get_host_and_port()))
        files = fsspec.filesystem("s3")
        files.mkdir("tests")
        yield "s3://tests"
        files.clear_instance_cache()
        server.stop()


@pytest.fixture
def s3_requests(s3: str) -> list[tuple[str, str]]:
    """The requests that the server answers during a test: each its method, and path with query."""
    _requests.clear()
    return _requests

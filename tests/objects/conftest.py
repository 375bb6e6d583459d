"""One object storage for all tests of a worker, and a prefix of its own for each test."""

import secrets
from collections.abc import Iterator

import pytest

from tests.objects.server import ObjectStorage, running


@pytest.fixture(scope="session")
def server() -> Iterator[ObjectStorage]:
    with running() as storage:
        yield storage


@pytest.fixture
def storage(server: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> ObjectStorage:
    """The storage, with the variables by which this process reaches it."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture
def prefix() -> str:
    return f"test/{secrets.token_hex(4)}"


@pytest.fixture
def place(storage: ObjectStorage, prefix: str) -> str:
    """A setting `artifacts`."""
    return storage.place(prefix)

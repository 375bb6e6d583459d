"""The app, once for each file of tests."""

from collections.abc import Iterator

import pytest

from tests.sources.utcp.serving import App, running_app


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    with running_app() as app:
        yield app

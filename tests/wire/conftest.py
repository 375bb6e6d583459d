"""What the tests of the client share."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.wire.certificates import Authority
from toolpost.wire.http1 import Http1Transport
from toolpost.wire.routes import ssl_context


@pytest.fixture
async def transport() -> AsyncIterator[Http1Transport]:
    transport = Http1Transport()
    yield transport
    await transport.close()


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Authority]:
    """One that the process trusts as long as the test runs."""
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    ssl_context.cache_clear()
    yield authority
    ssl_context.cache_clear()

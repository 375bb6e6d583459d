"""What the tests of the client share."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.wire.certificates import Authority
from toolpost.wire.http1_transport import Http1Transport
from toolpost.wire.httpx_transport import Httpx2Transport
from toolpost.wire.tls import http2_ssl_context, ssl_context
from toolpost.wire.transports import HttpTransport


@pytest.fixture(params=["http1", "httpx2"])
async def transport(request: pytest.FixtureRequest) -> AsyncIterator[HttpTransport]:
    transport: HttpTransport = Http1Transport() if request.param == "http1" else Httpx2Transport()
    yield transport
    await transport.close()


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Authority]:
    """One that the process trusts as long as the test runs."""
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    for context in (ssl_context, http2_ssl_context):
        context.cache_clear()
    yield authority
    for context in (ssl_context, http2_ssl_context):
        context.cache_clear()

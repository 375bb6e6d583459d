"""What is an n8n, and what is not."""

import json
from typing import Any

import pytest

from toolpost.sources.webhook.n8n_api import looks_like_n8n
from toolpost.wire.messages import Headers

JSON = "application/json; charset=utf-8"
OLDER = {"data": {"versionCli": "1.20.0", "endpointWebhook": "webhook", "instanceId": "x"}}


@pytest.mark.parametrize(
    ("status", "kind", "body", "expected"),
    [
        pytest.param(200, JSON, OLDER, True, id="older settings"),
        pytest.param(200, "text/html", b"<title>n8n.io - Workflow Automation</title>", True, id="editor"),
        pytest.param(404, "text/html", b"<title>n8n.io - Workflow Automation</title>", False, id="page of an error"),
        pytest.param(200, "text/html", b"<h1>We like n8n</h1>", False, id="a page about it"),
        pytest.param(200, JSON, {"status": "ok"}, False, id="health"),
        pytest.param(200, JSON, {"data": [1]}, False, id="a list"),
        pytest.param(200, JSON, [1], False, id="no object"),
        pytest.param(200, JSON, b"{oops", False, id="broken"),
        pytest.param(401, JSON, {"message": "unauthorized"}, False, id="somebody's refusal"),
        pytest.param(500, JSON, OLDER, False, id="a failure"),
        pytest.param(200, "text/plain", b"n8n", False, id="text"),
    ],
)
def test_an_n8n_is_reported_from_others(status: int, kind: str, body: Any, expected: bool) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    assert looks_like_n8n(status, Headers((("Content-Type", kind),)), raw) is expected

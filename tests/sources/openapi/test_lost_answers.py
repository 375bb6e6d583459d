"""Calls whose answer never came, or says less than it should: what is told of them."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.patient_settings import PatientSettings
from tests.wire.site import Received, Site, reply
from toolpost import Completed, ExternalToolConfig, Failed, Toolbox
from toolpost.contracts.outcomes import Outcome
from toolpost.errors import ToolConnectionError

Server = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]
DOUBT = "; it may have taken effect"
TEXT: dict[str, Any] = {"200": {"content": {"application/json": {"schema": {"type": "string"}}}}}


async def called(folder: Path, server: Server, tool: str, **options: Any) -> Outcome:
    """Call one of two operations of a site that does what a test wants."""
    async with Site(server) as site:
        document: dict[str, Any] = {
            "openapi": "3.1.0",
            "info": {"title": "t", "version": "1"},
            "servers": [{"url": site.url}],
            "paths": {"/x": {name: {"operationId": name, "responses": TEXT} for name in ("get", "post")}},
        }
        if options:
            flows: dict[str, Any] = {"clientCredentials": {"tokenUrl": f"{site.url}/token", "scopes": {}}}
            document["components"] = {"securitySchemes": {"login": {"type": "oauth2", "flows": flows}}}
            document["security"] = [{"login": []}]
        file = folder / "api.json"
        file.write_text(json.dumps(document))
        written = {"name": "api", "transport": "http", "connection": str(file), "retry_policy": {"max_attempts": 1}}
        one = ExternalToolConfig.model_validate({**written, **options})
        async with Toolbox(settings=PatientSettings(data_dir=None, policy="exploratory", sources=[one])) as box:
            return await box.call(f"api.{tool}", {})


async def hangs_up(received: Received, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def half_an_answer(received: Received, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
    writer.close()


@pytest.mark.parametrize("server", [hangs_up, half_an_answer])
async def test_a_lost_answer_leaves_a_doubt_about_what_was_to_change_something(tmp_path: Path, server: Server) -> None:
    written = await called(tmp_path, server, "post")
    read = await called(tmp_path, server, "get")
    assert isinstance(written, Failed)
    assert isinstance(read, Failed)
    assert str(written.error).endswith(f"the connection ended too early{DOUBT}")
    assert str(read.error).endswith("the connection ended too early")


@pytest.mark.parametrize(
    ("tool", "status", "doubted"), [("post", 303, True), ("post", 307, False), ("get", 302, False)]
)
async def test_a_redirect_after_a_change_says_that_it_may_be_done(
    tmp_path: Path, tool: str, status: int, doubted: bool
) -> None:
    async def redirects(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(status, location="/y"))

    outcome = await called(tmp_path, redirects, tool)
    assert isinstance(outcome, Failed)
    assert "redirects to '/y', which was not followed." in str(outcome.error)
    assert ("The request may have taken effect" in str(outcome.error)) is doubted


async def test_a_token_that_does_not_come_leaves_no_doubt_about_the_call(tmp_path: Path) -> None:
    login = {"auth_config": {"schemes": {"login": {"client_id": "me", "client_secret": "hidden"}}}}
    outcome = await called(tmp_path, hangs_up, "post", **login)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ToolConnectionError)
    assert not outcome.error.sent
    assert "The token endpoint of 'login' returned no token" in str(outcome.error)
    assert DOUBT not in str(outcome.error)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"ok", "ok"),
        (b'"ok"', "ok"),
        (b'{"a":', "cannot be read as application/json: Expecting value"),
        (b"<html>Sign in</html>", "cannot be read as application/json"),
        (b"o\0k", "cannot be read as application/json"),
    ],
    ids=["text", "JSON", "half of an object", "a page", "bytes"],
)
async def test_a_body_that_does_not_say_what_it_is_is_not_said_to(tmp_path: Path, body: bytes, told: str) -> None:
    async def answers(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    outcome = await called(tmp_path, answers, "get")
    if isinstance(outcome, Failed):
        assert told in str(outcome.error)
        assert "says that it is" not in str(outcome.error)
    else:
        assert isinstance(outcome, Completed)
        assert outcome.content == told

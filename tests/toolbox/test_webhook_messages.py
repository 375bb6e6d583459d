"""Event webhooks with a template: messages for Slack, Teams and mail services, with a link to the pending action."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.gateway.serving import listening
from toolpost import Paused, Settings, Toolbox, tool

HOSTILE = "<https://evil.example|ok> [pay](https://evil.example) \u202e{link}"


@tool(side_effects="write", destructive=True)
async def pay(to: str, password: str = "") -> str:
    """Pay somebody."""
    return to


class Chat:
    """A service that takes messages."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[tuple[Any, dict[str, str]]] = []
        self.came = asyncio.Event()

    async def __call__(self, request: Request) -> Response:
        self.requests.append((await request.json(), dict(request.headers)))
        self.came.set()
        return Response("ok")

    def settings(self, **webhook: Any) -> Settings:
        return Settings.model_validate(
            {
                "data_dir": None,
                "network": {"allow_hosts": [self.url.removeprefix("http://")]},
                "server": {"public_url": "https://tools.acme.example/toolpost/"},
                "webhooks": [{"name": "chat", "url": f"{self.url}/hook", "events": ["APPROVAL_REQUESTED"], **webhook}],
            }
        )

    async def message(self) -> Any:
        async with asyncio.timeout(60):
            await self.came.wait()
        return self.requests[0][0]


@pytest.fixture
async def chat() -> AsyncIterator[Chat]:
    chat = Chat()
    async with listening(Starlette(routes=[Route("/hook", chat.__call__, methods=["POST"])])) as url:
        chat.url = url
        yield chat


def texts(node: Any, kind: str) -> list[str]:
    """The texts of all elements of one type, in order."""
    if isinstance(node, list):
        return [text for item in node for text in texts(item, kind)]
    if not isinstance(node, dict):
        return []
    own = [node["text"]] if node.get("type") == kind and isinstance(node.get("text"), str) else []
    return own + [text for item in node.values() for text in texts(item, kind)]


@pytest.mark.req("WEB-18")
async def test_slack_shows_the_facts_as_plain_text_with_a_link(chat: Chat) -> None:
    async with Toolbox(tools=[pay], settings=chat.settings(template="slack")) as box:
        paused = await box.call("pay", {"to": HOSTILE, "password": "hunter2hunter2"}, user="acme:ann")
        message = await chat.message()

    assert isinstance(paused, Paused)
    shown = texts(message["blocks"], "plain_text")
    assert shown[0] == "Needs approval: pay"
    assert "Requested by\nacme:ann" in shown
    assert "to\n<https://evil.example|ok> [pay](https://evil.example) {link}" in shown
    assert "hunter2" not in str(message)
    assert texts(message["blocks"], "mrkdwn") == []
    [button] = message["blocks"][-1]["elements"]
    assert button["url"] == f"https://tools.acme.example/toolpost/approvals/{paused.pending_id}"
    assert "webhook-signature" not in chat.requests[0][1]


async def test_slack_does_not_parse_names_in_its_notification(chat: Chat) -> None:
    settings = chat.settings(template="slack", events=["TOOL_CALL_FAILED"])
    async with Toolbox(tools=[pay], settings=settings) as box:
        await box.call("<!channel>", {})
        message = await chat.message()

    assert message["text"] == "Tool call failed: &lt;!channel&gt;"


@pytest.mark.req("WEB-18")
async def test_teams_gets_a_card_without_markdown(chat: Chat) -> None:
    async with Toolbox(tools=[pay], settings=chat.settings(template="teams")) as box:
        paused = await box.call("pay", {"to": HOSTILE}, user="acme:ann")
        message = await chat.message()

    assert isinstance(paused, Paused)
    [attachment] = message["attachments"]
    card = attachment["content"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    assert "<https://evil.example|ok> [pay](https://evil.example) {link}" in texts(card, "TextRun")
    assert card["actions"][0]["url"].endswith(f"/approvals/{paused.pending_id}")


@pytest.mark.req("WEB-18")
async def test_a_mail_service_gets_its_own_json(chat: Chat) -> None:
    template = {"to": ["eva@acme.example"], "subject": "[Toolpost] {subject}", "text": "{text}\n\n{facts}\n\n{link}"}
    settings = chat.settings(template=template, headers={"Authorization": "Bearer mail-key-4711"})
    async with Toolbox(tools=[pay], settings=settings) as box:
        paused = await box.call("pay", {"to": HOSTILE}, user="acme:ann")
        message = await chat.message()
        masked = box.redactor.text("mail-key-4711")

    assert isinstance(paused, Paused)
    assert message["subject"] == "[Toolpost] Needs approval: pay"
    assert message["to"] == ["eva@acme.example"]
    assert "Requested by: acme:ann\n" in message["text"]
    assert "{link}\n" in message["text"]  # of the argument: values are not templates
    assert message["text"].endswith(f"\n\nhttps://tools.acme.example/toolpost/approvals/{paused.pending_id}")
    assert chat.requests[0][1]["authorization"] == "Bearer mail-key-4711"
    assert "4711" not in masked + repr(settings)


@pytest.mark.parametrize(
    ("webhook", "problem"),
    [
        ({"template": {"text": "{card}"}}, "'card' is unknown"),
        ({"template": "discord"}, "'slack' or 'teams'"),
        ({}, "secret is required without a template"),
        ({"template": "slack", "headers": {"Content-Type": "x"}}, "is set by Toolpost"),
        ({"template": "slack", "headers": {"a b": "x"}}, "not a valid header name"),
    ],
)
def test_a_wrong_template_is_refused(webhook: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        Settings.model_validate({"webhooks": [{"name": "chat", "url": "https://chat.example/hook", **webhook}]})

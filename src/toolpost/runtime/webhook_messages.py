"""Bodies of event webhooks for chat and mail services: Slack, Teams, or JSON with placeholders.

The texts of tools and agents are sent in fields that a service shows as plain text. Slack parses `text`: it is escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, TypeAlias

from toolpost.schema.hidden_text import strip_invisible
from toolpost.schema.json_values import is_array, is_object

Template: TypeAlias = Literal["slack", "teams"] | Mapping[str, Any]

_SUBJECTS = {
    "approval": "Needs approval",
    "consent": "Needs an account",
    "input": "Needs input",
    "unknown": "Outcome unknown",
    "restart": "Suspended for restart",
}
_MOST_ARGUMENTS = 8
_LONGEST_VALUE = 300
_LONGEST_SUBJECT = 150  # Slack refuses longer headers
_PLACEHOLDER = re.compile(r"\{([a-z]+)\}")


class WebhookMessage(NamedTuple):
    """An event in words: a subject, a sentence, labeled facts, and the page of the pending action, if known."""

    type: str
    subject: str
    text: str
    facts: tuple[tuple[str, str], ...]
    link: str = ""

    @classmethod
    def of(cls, event: Mapping[str, Any], *, console: str) -> WebhookMessage:
        """Describe an event, in the form of `PendingActions.describe_event`; `console` is the URL of the console."""
        card = event.get("card")
        if is_object(card):
            return cls._of_card(event["type"], card, console)
        payload = event["payload"]
        kind, tool = str(event["type"]).replace("_", " ").capitalize(), str(payload.get("tool_name", ""))
        named = {"Tool": tool, "User": f"{event['tenant']}:{event['user']}", "Answered by": payload.get("by")}
        facts = tuple((name, _plain(value)) for name, value in named.items() if value)
        text = payload.get("error_message") or payload.get("reason") or ""
        return cls(event["type"], _plain(f"{kind}: {tool}" if tool else kind, _LONGEST_SUBJECT), _plain(text), facts)

    @classmethod
    def _of_card(cls, event_type: str, card: Mapping[str, Any], console: str) -> WebhookMessage:
        changed = card["reason"] == "definition_changed"
        subject = "Definition changed" if changed else _SUBJECTS.get(card["kind"], card["kind"])
        return cls(
            event_type,
            _plain(f"{subject}: {card['tool_name']}", _LONGEST_SUBJECT),
            _plain(card["prompt"]),
            tuple((name, _plain(value)) for name, value in _facts(card) if value),
            f"{console}/approvals/{card['id']}" if console else "",
        )

    def render(self, template: Template) -> Any:
        """Return the body of the request as JSON data."""
        if template == "slack":
            return self._slack()
        if template == "teams":
            return self._teams()
        facts = "\n".join(f"{name}: {value}" for name, value in self.facts)
        return _fill(template, {**self._asdict(), "facts": facts})

    def _slack(self) -> dict[str, Any]:
        # Only `text`, the notification, is parsed by Slack: https://docs.slack.dev/messaging/formatting-message-text
        escaped = self.subject.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        blocks: list[dict[str, Any]] = [{"type": "header", "text": _slack_text(self.subject)}]
        if self.text:
            blocks.append({"type": "section", "text": _slack_text(self.text)})
        # A section has at most ten fields.
        for at in range(0, len(self.facts), 10):
            fields = [_slack_text(f"{name}\n{value}") for name, value in self.facts[at : at + 10]]
            blocks.append({"type": "section", "fields": fields})
        if self.link:
            button = {"type": "button", "text": _slack_text("Review"), "url": self.link, "style": "primary"}
            blocks.append({"type": "actions", "elements": [button]})
        return {"text": escaped, "blocks": blocks}

    def _teams(self) -> dict[str, Any]:
        # TextBlock and FactSet parse Markdown, so that an argument could show a link; a TextRun does not.
        body = [_teams_text(self.subject, size="large", weight="bolder")]
        if self.text:
            body.append(_teams_text(self.text))
        body += [_teams_text(f"{name}: ", value, weight="bolder") for name, value in self.facts]
        actions = [{"type": "Action.OpenUrl", "title": "Review", "url": self.link}] if self.link else []
        card = {"type": "AdaptiveCard", "version": "1.4", "body": body, "actions": actions}
        attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
        return {"type": "message", "attachments": [attachment]}


def unknown_placeholders(template: Mapping[str, Any]) -> list[str]:
    """Return the placeholders of a template that no message has."""
    return [name for name in _PLACEHOLDER.findall(json.dumps(template)) if name not in WebhookMessage._fields]


def placeholders() -> list[str]:
    """Return the placeholders of templates."""
    return [f"{{{name}}}" for name in WebhookMessage._fields]


def _facts(card: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "Requested by", card["asked_by"]
    yield "Target", card["target"].get("summary")
    arguments = card["arguments"]
    shown = list(arguments)[:_MOST_ARGUMENTS]
    for name in shown:
        yield _plain(name, 60), arguments[name]
    if len(arguments) > len(shown):
        yield "More arguments", str(len(arguments) - len(shown))
    yield "Approvers", ", ".join(card["answerers"] or ())
    if card["expires_at"] is not None:
        yield "Expires", f"{datetime.fromtimestamp(card['expires_at'], UTC):%Y-%m-%d %H:%M} UTC"
    yield "ID", card["id"]


def _plain(value: Any, longest: int = _LONGEST_VALUE) -> str:
    """Return a value as visible text of limited length."""
    text = strip_invisible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _slack_text(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}


def _teams_text(text: str, value: str = "", *, weight: str = "default", size: str = "default") -> dict[str, Any]:
    runs = [{"type": "TextRun", "text": text, "weight": weight, "size": size}]
    if value:
        runs.append({"type": "TextRun", "text": value})
    return {"type": "RichTextBlock", "inlines": runs}


def _fill(template: Any, values: Mapping[str, str]) -> Any:
    """Replace the placeholders in the strings of a template; values are never read as placeholders."""
    if isinstance(template, str):
        return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), template)
    if is_object(template):
        return {name: _fill(value, values) for name, value in template.items()}
    if is_array(template):
        return [_fill(value, values) for value in template]
    return template

"""What tools answer, read as findings or as a page: each server has a shape of its own, and many only write text."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from toolpost.builtin.providers.api import objects, text
from toolpost.schema.jsontypes import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Mapping

_LISTS = (
    *("results", "items", "data", "chunks", "documents", "web", "hits", "webPages"),
    *("organic", "organic_results", "entities", "content"),
)
_PATHS = tuple((key, *inner) for inner in ((), ("results",), ("hits",), ("value",)) for key in _LISTS)
_WORDS = ("content", "text", "snippet", "description", "body", "markdown", "summary", "observations")
_PLACES = ("url", "link", "href", "source", "uri")
_LABELS = {
    **dict.fromkeys(("title", "name"), "title"),
    **dict.fromkeys(("url", "link"), "url"),
    **dict.fromkeys(("description", "content", "snippet", "summary", "text"), "content"),
}
_LABEL = re.compile(rf"[\s#*-]*(?:\d+[.)]\s+)?\**({'|'.join(_LABELS)})\**:\**[ \t]*(.*)", re.IGNORECASE)
_decoder = json.JSONDecoder()


def findings(content: Any) -> list[dict[str, Any]] | None:
    """The things that an answer lists, wherever it does; a text alone is one thing. None when there is no list."""
    answer = _plain(content)
    if isinstance(answer, str):
        return (_labelled(answer) or [{"content": answer}]) if answer.strip() else None
    if is_array(answer):
        return [item if is_object(item) else {"content": item} for item in answer if is_object(item) or _is_text(item)]
    found = next((items for path in _PATHS if (items := objects(answer, *path))), None)
    if found is not None:
        return found
    return [] if is_object(answer) and any(is_array(answer.get(key)) for key in _LISTS) else None


def page_of(content: Any) -> Mapping[str, Any]:
    """The members of a page that a tool read; what is only text is its content."""
    answer = _plain(content)
    if is_object(answer):
        inner = answer.get("data")
        return inner if is_object(inner) else answer
    parts = answer if is_array(answer) else [answer]
    return {"content": "\n\n".join(part if isinstance(part, str) else words(part) for part in parts)}


def words(item: Any) -> str:
    """What a finding says: the first of its members that is a text, or a list of them."""
    for key in _WORDS if is_object(item) else ():
        said = item.get(key)
        if is_array(said):
            said = "\n".join(part if isinstance(part, str) else words(part) for part in said)
        if _is_text(said):
            return str(said)
    return ""


def place(item: Mapping[str, Any]) -> str:
    """Where a finding is from."""
    return text(item, *_PLACES)


def complaint_in(content: Any) -> str:
    """What an answer says of a failure, where it says that."""
    answer = _plain(content)
    if not is_object(answer):
        return ""
    error = answer.get("error") or answer.get("errors")
    said = text(error, "message", "detail") if is_object(error) else error
    return said if isinstance(said, str) else ""


def _plain(content: Any) -> Any:
    """An answer out of its wrapping: FastMCP wraps all that is no object, and many servers write JSON as text."""
    if is_object(content) and len(content) == 1 and "result" in content:
        return _read(content["result"])
    answer = _read(content)
    return _plain(answer) if answer is not content and is_object(answer) else answer


def _read(content: Any) -> Any:
    """A text that is JSON as what it says; some write one document after another."""
    if not isinstance(content, str) or content.lstrip()[:1] not in ("{", "["):
        return content
    try:
        documents = _documents(content)
    except (ValueError, RecursionError):
        return content
    return documents[0] if len(documents) == 1 else documents


def _documents(written: str) -> list[Any]:
    found: list[Any] = []
    at = len(written) - len(written.lstrip())
    while at < len(written):
        document, end = _decoder.raw_decode(written, at)
        found.append(document)
        at = len(written) - len(written[end:].lstrip())
    return found


def _labelled(written: str) -> list[dict[str, Any]]:
    """Findings written one below the other, with their titles and URLs after labels; none unless all have a URL."""
    found: list[dict[str, Any]] = []
    last = ""
    for line in written.splitlines():
        label = _LABEL.fullmatch(line)
        if label is not None:
            last = _LABELS[label[1].lower()]
            if not found or last in found[-1]:
                found.append({})
            found[-1][last] = label[2].strip()
        elif last == "content":
            found[-1]["content"] = f"{found[-1]['content']}\n{line.strip()}".rstrip()
    return found if all(_of_the_web(one) for one in found) else []


def _of_the_web(item: Mapping[str, Any]) -> bool:
    return str(item.get("url", "")).startswith(("http://", "https://"))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())

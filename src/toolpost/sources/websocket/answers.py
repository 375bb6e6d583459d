"""What an answer means: a result, or the error that the server tells of in it."""

from __future__ import annotations

from typing import Any

from toolpost.contracts.errors import ToolClientError
from toolpost.schema.jsontypes import is_object
from toolpost.sources.websocket.messages import json_text
from toolpost.web.failures import presentable

_JSON_RPC = "2.0"


def result_of(answer: Any) -> Any:
    """The result in an answer: all of it, or what JSON-RPC calls so; a ToolClientError if it tells of an error."""
    if not is_object(answer):
        return answer
    if (error := answer.get("error")) and _is_told(error):
        raise ToolClientError(f"the server answered with an error: {_words(error, answer)}", code="error_answer")
    if answer.get("jsonrpc") == _JSON_RPC and "result" in answer:
        return answer["result"]
    return answer


def _is_told(error: Any) -> bool:
    """Whether it says what went wrong; a number may as well be the error of a measurement."""
    return error is True or isinstance(error, (str, dict))


def _words(error: Any, answer: dict[str, Any]) -> str:
    told = answer.get("message", "no reason is given") if error is True else error
    if not is_object(told):
        return presentable(told if isinstance(told, str) else json_text(told), ())
    message, code = told.get("message"), told.get("code")
    if not isinstance(message, str):
        return presentable(json_text(told), ())
    return presentable(message if code is None else f"{message} (code {code})", ())

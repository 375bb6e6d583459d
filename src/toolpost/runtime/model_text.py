"""An outcome as a model is to read it: what strangers said is marked as theirs, and nothing in it is hidden."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import ToolClientError, ToolExecutionError, ToolOutputError, ToolServerError
from toolpost.contracts.outcomes import OUTPUT_ISSUES, Completed, Failed
from toolpost.runtime.ids import writable
from toolpost.schema.hidden_text import visible
from toolpost.web.untrusted import UNTRUSTED, WARNING, tool_results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.contracts.errors import ToolError
    from toolpost.contracts.outcomes import Outcome

_LONGEST_ERROR = 4000
_LONGEST_ISSUE = 200
_QUOTING = (ToolClientError, ToolServerError, ToolOutputError)  # these repeat what the other side said


def model_text(outcome: Outcome) -> str:
    """What to put into a model's messages for an outcome.

    The result of a configured source stands inside marks, after a warning not to follow what it says.
    """
    if isinstance(outcome, Completed):
        return writable(_result_text(outcome))
    if isinstance(outcome, Failed):
        return _error_text(outcome.tool_name, outcome.error)
    return f"This call waits for a person ({outcome.question.kind}): {visible(outcome.question.prompt).text}"


def _result_text(outcome: Completed) -> str:
    text = _in_words(outcome.content) if outcome.text is None else outcome.text
    if OUTPUT_ISSUES in outcome.meta:
        text = f"{text}\n{_misfit(outcome.meta[OUTPUT_ISSUES])}"
    if outcome.meta.get("trust") != UNTRUSTED or text.startswith(WARNING):  # what a tool marked itself is marked once
        return text
    return tool_results(text, str(outcome.meta.get("origin") or outcome.tool_name))


def _misfit(issues: Sequence[str]) -> str:
    """One line on a result that breaks its schema; the server's words in it stand inside the marks like the rest."""
    first = " ".join(str(issue) for issue in issues[:1])
    more = f", and {len(issues) - 1} more" if len(issues) > 1 else ""
    return f"[This result breaks the tool's own output schema: {first[:_LONGEST_ISSUE]}{more}]"


def _error_text(tool_name: str, error: ToolError) -> str:
    head = f"The call failed ({error.error_code})"
    message = error.message if len(error.message) <= _LONGEST_ERROR else f"{error.message[:_LONGEST_ERROR]}…"
    if isinstance(error, _QUOTING) or (error.origin and isinstance(error, ToolExecutionError)):
        return f"{head}.\n{tool_results(message, tool_name)}"
    return f"{head}: {visible(message).text}"


def _in_words(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)

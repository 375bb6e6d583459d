"""Arguments that a model writes as JSON text."""

from __future__ import annotations

import json
from typing import Any

from toolpost.contracts.errors import ToolValidationError
from toolpost.schema.json_values import refuse_constant


class UnreadableArguments:
    """Placeholder for arguments whose text is not JSON; without the text, because secrets in it cannot be found."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def refusal(self, tool_name: str) -> ToolValidationError:
        """Return the error by which a model can correct its call."""
        message = f"$: the arguments are not JSON: {self.reason}; send one JSON object, such as {{}}"
        return ToolValidationError(message, tool_name=tool_name)


def read_arguments(text: str) -> Any:
    """Parse arguments written as JSON text; blank text counts as no arguments."""
    if not text.strip():
        return {}
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except json.JSONDecodeError as error:
        return UnreadableArguments(f"{error.msg} at line {error.lineno} column {error.colno}")
    except ValueError as error:  # NaN, infinities, and numbers with too many digits
        return UnreadableArguments(str(error))
    except RecursionError:
        return UnreadableArguments("it is nested too deeply")

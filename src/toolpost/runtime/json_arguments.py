"""Arguments that arrive as JSON text, as models write them."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from toolpost.contracts.errors import ToolValidationError

_TOO_DEEP = "it is nested too deeply"


class UnreadableArguments:
    """Stands for arguments whose text is no JSON, without the text: nobody can tell what is secret in it."""

    __slots__ = ("why",)

    def __init__(self, why: str) -> None:
        self.why = why

    def refusal(self, tool_name: str) -> ToolValidationError:
        """The error that a model reads, and can mend its call by."""
        told = f"$: the arguments are not JSON: {self.why}; send one JSON object, such as {{}}"
        return ToolValidationError(told, tool_name=tool_name)


def read_arguments(text: str) -> Any:
    """The value that the text of arguments stands for; text without a word counts as no arguments."""
    if not text.strip():
        return {}
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        return UnreadableArguments(f"{error.msg} at line {error.lineno} column {error.colno}")
    except ValueError as error:  # NaN and its like, and numbers with too many digits
        return UnreadableArguments(str(error))
    except RecursionError:
        return UnreadableArguments(_TOO_DEEP)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")

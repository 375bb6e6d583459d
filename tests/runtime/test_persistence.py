"""Outcomes survive being written and read."""

import pytest

from toolpost import Completed, Failed, Outcome, Paused, Question
from toolpost.contracts.outcomes import outcome_to_dict
from toolpost.errors import ToolAuthError, ToolNotFoundError, ToolTimeoutError, ToolValidationError
from toolpost.runtime.persistence import load_outcome


@pytest.mark.parametrize(
    "outcome",
    [
        Completed("c", "r", "t", {"a": 1}, 1.0, ("art_1",)),
        Failed("c", "r", "t", ToolNotFoundError("t", suggestion="u")),
        Failed("c", "r", "t", ToolTimeoutError(timeout_ms=5)),
        Failed("c", "r", "t", ToolAuthError("no", status_code=401)),
        Failed("c", "r", "t", ToolValidationError(["$.a: bad", "$.b: worse"])),
        Paused("c", "r", "t", "ask_1", Question(kind="input", prompt="Which?")),
    ],
)
def test_what_was_kept_is_what_comes_back(outcome: Outcome) -> None:
    back = load_outcome(outcome_to_dict(outcome))
    assert type(back) is type(outcome)
    assert outcome_to_dict(back) == outcome_to_dict(outcome)
    if isinstance(outcome, Failed):
        assert type(back.error) is type(outcome.error)  # type: ignore[union-attr]

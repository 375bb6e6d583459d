"""What a provider's refusal means: each has its own way to say that a key is wrong, or that there was too much."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from toolpost.contracts.errors import ErrorCategory, ToolAuthError, ToolRateLimitError
from toolpost.web.failures import failure_of

if TYPE_CHECKING:
    from toolpost.builtin.web_access import Answer
    from toolpost.contracts.errors import ToolError
    from toolpost.wire.headers import Headers

# Brave refuses a wrong key with 422, Google with 400; a request that is wrong otherwise has the same status.
_WRONG_KEY = re.compile(rb"SUBSCRIPTION_TOKEN_INVALID|x-subscription-token|API_KEY_INVALID|keyInvalid", re.IGNORECASE)
# Google and Bing say 403 both to who may not ask and to who has asked too much.
_TOO_MUCH = re.compile(
    rb"rateLimitExceeded|quotaExceeded|dailyLimitExceeded|RESOURCE_EXHAUSTED|out of call volume quota", re.IGNORECASE
)
_LOOKED_AT = 20_000
_WHOLE = re.compile(r"\d{1,9}(?:\.\d{1,9})?")


def complaint(name: str, answer: Answer, *, secrets: tuple[str, ...] = ()) -> ToolError:
    """The error that an answer of a provider stands for; nothing secret shows in it."""
    remedy = f"Check the key of {name} in the configuration."
    status, said = answer.status, answer.body[:_LOOKED_AT]
    error = failure_of(name, status, answer.headers, answer.body, remedy=remedy, secrets=secrets)
    if status in (400, 422) and _WRONG_KEY.search(said):
        wrong_key = f"{error.message.rstrip('.')}. {remedy}"
        return ToolAuthError(wrong_key, status_code=status, category=ErrorCategory.AUTH_REQUIRED)
    if status == 403 and _TOO_MUCH.search(said):
        wait = error.retry_after_s
        too_much = ErrorCategory.RETRYABLE_RATE_LIMIT
        error = ToolRateLimitError(error.message, status_code=status, category=too_much, retry_after_s=wait)
    if isinstance(error, ToolRateLimitError) and error.retry_after_s is None:
        error.retry_after_s = _until_reset(answer.headers)
    return error


def _until_reset(headers: Headers) -> float | None:
    """Brave counts in several windows at once, and tells what is left of each and when it begins anew."""
    left = _numbers(headers.get("x-ratelimit-remaining"))
    resets = _numbers(headers.get("x-ratelimit-reset"))
    used_up = [reset for reset, rest in zip(resets, left, strict=False) if rest <= 0]
    return max(used_up, default=min(resets, default=None))


def _numbers(field: str | None) -> list[float]:
    parts = [part.strip() for part in (field or "").split(",")]
    return [float(part) for part in parts if _WHOLE.fullmatch(part)]

"""Delays that a server requests with `Retry-After` and similar fields."""

from __future__ import annotations

import math
import re
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolpost.wire.messages import Headers

_SECONDS = re.compile(r"\d{1,9}(?:\.\d{1,9})?")
_NUMBER = re.compile(r"\d{1,13}(?:\.\d{1,9})?")
_EPOCH = 1e9  # a larger number of seconds is a date
_EPOCH_MS = 1e12


def parse_retry_after(headers: Headers, *, now: float | None = None) -> float | None:
    """Parse the delay in seconds from Retry-After (RFC 9110 section 10.2.3) or similar fields of APIs."""
    now = time.time() if now is None else now
    if (retry_after := headers.get("retry-after")) is not None:
        return _seconds(retry_after, now) if _SECONDS.fullmatch(retry_after.strip()) else _until_date(retry_after, now)
    if (millis := headers.get("retry-after-ms")) is not None and _SECONDS.fullmatch(millis.strip()):
        return float(millis) / 1000
    if (headers.get("x-ratelimit-remaining") or headers.get("ratelimit-remaining")) != "0":
        return None
    reset = headers.get("x-ratelimit-reset") or headers.get("ratelimit-reset") or ""
    return _seconds(reset, now) if _NUMBER.fullmatch(reset.strip()) else None


def _seconds(text: str, now: float) -> float:
    value = float(text)
    if value > _EPOCH_MS:
        value /= 1000
    return max(0.0, value - now) if value > _EPOCH else value


def _until_date(text: str, now: float) -> float | None:
    try:
        wait = parsedate_to_datetime(text).timestamp() - now
    except (TypeError, ValueError, OverflowError):
        return None
    return max(0.0, wait) if math.isfinite(wait) else None

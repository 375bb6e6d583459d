"""What pydantic says of a value, without the words that only its users know."""

from __future__ import annotations

import re

_PREFIX = re.compile(r"^(?:Value error|Assertion failed), ")
_SHOULD = re.compile(r"^\w+ should ")


def in_plain_words(message: str) -> str:
    """The message as a sentence about the value: "must be greater than 1", or a validator's own words."""
    return _SHOULD.sub("must ", _PREFIX.sub("", message))

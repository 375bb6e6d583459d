"""Echoes: what a source was given and its other side repeats, taken out before a model or a disk gets it."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from toolpost.catalog.threads import run_in_thread
from toolpost.contracts.errors import ToolOutputError
from toolpost.policy.redaction import Redactor
from toolpost.runtime.results import json_text
from toolpost.schema.values import text_within

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.contracts.calls import Credential, ToolOutput

# A shorter text, or one of letters alone, may be in an answer for reasons of its own.
_UNMISTAKABLE = re.compile(r".{16,}|(?=.*[A-Za-z])(?=.*\d).{8,}", re.DOTALL)
_MOST_KNOWN = 1024
_LONG = 50_000
_NOTHING = Redactor()
_BREAKS = re.compile(r"\\[bfnrt]")


class Echoes:
    """Knows the credentials that were lent lately; whatever else an answer says is left alone."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, ...], frozenset[str]], Redactor] = {}

    async def without(self, output: ToolOutput, credential: Credential, secrets: frozenset[str]) -> ToolOutput:
        """Redact the credential of a call and the source's other secrets in its output; a long one in a thread."""
        redactor = self._redactor(tuple(credential.headers.values()), secrets)
        if redactor is _NOTHING:
            return output
        content = output.content
        short = len(content) <= _LONG if isinstance(content, bytes) else text_within(_LONG, [content, output.text])
        if short:
            return _without(output, redactor)
        searched: ToolOutput = await run_in_thread(partial(_without, output, redactor))
        return searched

    def _redactor(self, values: tuple[str, ...], secrets: frozenset[str]) -> Redactor:
        known = self._known.get((values, secrets))
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = [one for one in (*map(_secret_in, values), *secrets) if _UNMISTAKABLE.fullmatch(one)]
            known = self._known[values, secrets] = Redactor(found) if found else _NOTHING
        return known


def _without(output: ToolOutput, redactor: Redactor) -> ToolOutput:
    if isinstance(output.content, bytes):
        return output._replace(content=_bytes_without(output.content, redactor))
    if not _may_be_in(output, redactor.text):
        return output
    text = None if output.text is None else redactor.text(output.text)
    return output._replace(content=redactor.texts(output.content), text=text)


def _secret_in(value: str) -> str:
    """What of a header's value is secret: behind `Bearer`, and behind the name of a cookie."""
    word = value.rpartition(" ")[2]
    return word.partition("=")[2] or word


def _bytes_without(content: bytes, redactor: Redactor) -> bytes:
    """Bytes that are a text without secrets; others are no text that anybody reads."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content
    left = redactor.text(text)
    return content if left == text else left.encode()


def _may_be_in(output: ToolOutput, redact: Callable[[str], str]) -> bool:
    """Whether a look at each text is worth it; all of them at once, as JSON, tell in a fraction of the time."""
    try:
        told = json_text(output.content)
    except ToolOutputError:
        return False  # and it goes no further
    if "\\u" in told:  # behind these may stand what is not seen
        return True
    if "\\" in told:
        told = _BREAKS.sub("", told)
    return redact(told) != told or (output.text is not None and redact(output.text) != output.text)

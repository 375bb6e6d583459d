"""Echoes: a credential that the other side repeats in its answer, taken out before a model or a disk gets it."""

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
    from collections.abc import Callable, Mapping

    from toolpost.contracts.calls import Credential, ToolOutput

_UNMISTAKABLE = 16  # a shorter word may be in an answer for reasons of its own
_MOST_KNOWN = 1024
_LONG = 50_000
_NOTHING = Redactor()
_BREAKS = re.compile(r"\\[bfnrt]")


class Echoes:
    """Knows the credentials that were lent lately; whatever else an answer says is left alone."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], Redactor] = {}

    async def without(self, output: ToolOutput, credential: Credential) -> ToolOutput:
        """The output of a call that travelled with a credential, without it; a long one is searched in a thread."""
        redactor = self._redactor(credential.headers)
        if output.content.__class__ is bytes or redactor is _NOTHING:
            return output
        if text_within(_LONG, [output.content, output.text]):
            return _without(output, redactor)
        searched: ToolOutput = await run_in_thread(partial(_without, output, redactor))
        return searched

    def _redactor(self, headers: Mapping[str, str]) -> Redactor:
        values = tuple(headers.values())
        known = self._known.get(values)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            secrets = [secret for value in values if len(secret := _secret_in(value)) >= _UNMISTAKABLE]
            known = self._known[values] = Redactor(secrets) if secrets else _NOTHING
        return known


def _without(output: ToolOutput, redactor: Redactor) -> ToolOutput:
    if not _may_be_in(output, redactor.text):
        return output
    text = None if output.text is None else redactor.text(output.text)
    return output._replace(content=redactor.texts(output.content), text=text)


def _secret_in(value: str) -> str:
    """What of a header's value is secret: behind `Bearer`, and behind the name of a cookie."""
    word = value.rpartition(" ")[2]
    return word.partition("=")[2] or word


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

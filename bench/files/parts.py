"""The figure of the file tools as a part of a run."""

from __future__ import annotations

from functools import partial

from bench.core.main import Part
from bench.files import figure
from bench.files.material import FileScale


def parts(scale: FileScale) -> list[Part]:
    """All there are."""
    return [Part("files", figure.count(scale), partial(figure.measure, scale))]

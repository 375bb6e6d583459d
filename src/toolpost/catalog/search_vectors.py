"""Vectors of words from a static embedding model, and of tools from their words.

The model is WordLlama's, which comes in its wheel; nothing is downloaded. A word has one vector whatever stands around
it, so a tool's vector is a sum, which costs microseconds.
"""

from __future__ import annotations

import math
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]

_WIDTH = 256


def open_vectors() -> ToolVectors | None:
    """Load the model; None where the extra `search` is not installed. Takes a while: call it in a thread."""
    model = _load_model()
    return None if model is None else ToolVectors(lambda words: model.embed(words, norm=True))


@cache
def _load_model() -> Any:
    """Load the model once in a process; it never changes."""
    package = find_spec("wordllama")
    if package is None or package.origin is None:
        return None
    wordllama: Any = import_module("wordllama")  # has no types
    # Version 0.4 looks for its own tokenizer in the folder of a cache only, which its package has the shape of.
    return wordllama.WordLlama.load(cache_dir=Path(package.origin).parent, dim=_WIDTH, disable_download=True)


class ToolVectors:
    """The vectors of tools by number, and of the words that they are made of."""

    def __init__(self, embed: Callable[[list[str]], Any]) -> None:
        import numpy  # noqa: ICN001, PLC0415 - an extra

        self._np = numpy
        self._embed = embed
        self._row_of: dict[str, int] = {}
        self._words: Matrix = self._zeros(1024)
        self._tools: Matrix = self._zeros(64)

    def set(self, tools: Mapping[int, Mapping[str, float]]) -> None:
        """Set the vectors of tools to the weighted sums of their words."""
        self._add_words({word for words in tools.values() for word in words})
        if tools:
            self._tools = self._grown(self._tools, max(tools) + 1)
        for number, words in tools.items():
            self._tools[number] = self._sum(words)

    def clear(self, number: int) -> None:
        """Remove the vector of a tool: it is like nothing."""
        self._tools[number] = 0

    def as_array(self, numbers: Sequence[float]) -> Matrix:
        """Return numbers, one for each tool, as `most_like` takes them."""
        return self._np.asarray(numbers, dtype="f4")

    def most_like(self, words: Mapping[str, float], *, least: float, factors: Matrix | None) -> Iterator[int]:
        """Yield the tools that are like the words by at least `least`, the most similar first.

        `factors` are by how much more each tool counts.
        """
        np = self._np
        self._add_words(words)
        # One product a row: a product of the whole matrix would wake threads, for longer than it takes.
        likeness = np.vecdot(self._tools, self._sum(words))
        found = np.flatnonzero(likeness >= least)
        scores = likeness[found] if factors is None else likeness[found] * factors[found]
        return iter(found[np.argsort(-scores)].tolist())

    def _sum(self, words: Mapping[str, float]) -> Matrix:
        rows = [self._row_of[word] for word in words]
        total: Matrix = self._np.asarray(list(words.values()), dtype="f4") @ self._words[rows]
        length = math.sqrt(float(total @ total))
        return total / length if length else total

    def _add_words(self, words: Collection[str]) -> None:
        new = [word for word in words if word not in self._row_of]
        if not new:
            return
        first = len(self._row_of)
        self._words = self._grown(self._words, first + len(new))
        self._words[first : first + len(new)] = self._embed(new)
        self._row_of.update({word: first + place for place, word in enumerate(new)})

    def _grown(self, matrix: Matrix, rows: int) -> Matrix:
        if rows <= len(matrix):
            return matrix
        larger = self._zeros(max(rows, 2 * len(matrix)))
        larger[: len(matrix)] = matrix
        return larger

    def _zeros(self, rows: int) -> Matrix:
        return self._np.zeros((rows, _WIDTH), dtype="f4")

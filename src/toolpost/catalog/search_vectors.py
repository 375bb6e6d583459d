"""Vectors of tools for search by meaning, from the static model of WordLlama (extra `search`)."""

from __future__ import annotations

import math
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]

_MEANING = 0.7  # weight of the meaning relative to the words
_WIDTH = 256


def open_vectors() -> ToolVectors | None:
    """Load the model; None if the extra `search` is not installed. This is slow: call it in a thread."""
    model = _load_model()
    return None if model is None else ToolVectors(lambda words: model.embed(words, norm=False))


@cache
def _load_model() -> Any:
    """Load the model once per process; its wheel contains it, and nothing is downloaded."""
    package = find_spec("wordllama")
    if package is None or package.origin is None:
        return None
    wordllama: Any = import_module("wordllama")  # has no types
    # Version 0.4 searches its tokenizer only in a cache folder; the package folder has the same structure.
    return wordllama.WordLlama.load(cache_dir=Path(package.origin).parent, dim=_WIDTH, disable_download=True)


class ToolVectors:
    """The vectors of tools by number, and of their words; a word has one vector in any context."""

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
        """Remove the vector of a tool; it is then similar to nothing."""
        self._tools[number] = 0

    def as_array(self, numbers: Sequence[float]) -> Matrix:
        """Return one number per tool as an array for `likeness`."""
        return self._np.asarray(numbers, dtype="f4")

    def likeness(self, words: Mapping[str, float], factors: Matrix | None) -> Matrix:
        """Return the similarity of each tool to the words, multiplied by `factors`."""
        self._add_words(words)
        # One product per row: a product of the whole matrix would start threads, which takes longer.
        likeness: Matrix = self._np.vecdot(self._tools, self._sum(words))
        if factors is not None:
            likeness[: len(factors)] *= factors
        return likeness

    def similar(self, likeness: Matrix, *, least: float) -> dict[int, float]:
        """Return the tools with a similarity of at least `least`."""
        rows = self._np.flatnonzero(likeness >= least)
        return dict(zip(rows.tolist(), likeness[rows].tolist(), strict=True))

    def fuse(self, tools: list[int], scores: Mapping[int, float], likeness: Matrix) -> list[int]:
        """Order tools by the sum of both scores, each relative to its best."""
        np = self._np
        by_words = np.asarray([scores.get(number, 0.0) for number in tools], dtype="f4")
        by_meaning = likeness[tools]
        whole = by_words / (by_words.max(initial=0) or 1) + _MEANING * by_meaning / (by_meaning.max(initial=0) or 1)
        return [tools[place] for place in np.argsort(-whole, kind="stable").tolist()]

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
        vectors = self._np.asarray(self._embed(new), dtype="f4")
        # The length of a vector is the weight of the word in the model; as for rarity, its square root is used.
        lengths = self._np.linalg.norm(vectors, axis=1, keepdims=True)
        self._words[first : first + len(new)] = vectors / self._np.sqrt(self._np.where(lengths > 0, lengths, 1))
        self._row_of.update({word: first + place for place, word in enumerate(new)})

    def _grown(self, matrix: Matrix, rows: int) -> Matrix:
        if rows <= len(matrix):
            return matrix
        larger = self._zeros(max(rows, 2 * len(matrix)))
        larger[: len(matrix)] = matrix
        return larger

    def _zeros(self, rows: int) -> Matrix:
        return self._np.zeros((rows, _WIDTH), dtype="f4")

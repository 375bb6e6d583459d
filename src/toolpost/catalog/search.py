"""Search in the catalog: by words with BM25, and with the extra `search` also by meaning.

The index contains names, descriptions, parameters and tags. A search first indexes the tools that have changed since
the last one, in a thread if there are many. The best results by words and by meaning are ordered by the sum of both
scores.

BM25 is implemented here because libraries index a fixed corpus, while tools come and go. The data of a tool in the
index depends on the tool alone, so the ranking does not depend on the order of changes.
"""

from __future__ import annotations

import math
import re
import threading
from collections import Counter
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from toolpost.catalog.search_terms import (
    STOP_WORDS,
    Effect,
    begins_with_several,
    effect_of,
    stem,
    terms_of,
    words_of_name,
    words_of_text,
)
from toolpost.catalog.threads import run_in_thread
from toolpost.contracts.nearest_names import nearest
from toolpost.schema.json_values import is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from toolpost.catalog.search_vectors import Matrix, ToolVectors
    from toolpost.contracts.spec import JsonSchema, ToolSpec

_MAX_QUERY = 1000  # characters of a query that are used
_K1, _B = 1.2, 0.75  # parameters of BM25: saturation of repeated terms, and discount of long texts
# The total weight of the terms of an ordinary tool. With the average of all texts, as usual in BM25, every change of
# the catalog would change all scores.
_USUAL_LENGTH = 40.0
_COMMON = 0.2  # a term in a larger share of the tools only orders the results of rarer terms
_DEPTH = 50  # results of each ranking that are ordered by both scores
# Factors of a score: the query names the source of the tool; the tool reads, changes or deletes as requested; the tool
# lists things, and the query begins with a plural.
_NAMED_SOURCE = 2.5
_SAME_EFFECT = 1.2
_LISTS = 1.2
_LEAST_LIKENESS = 0.35
_FEW = 20  # changed tools that are indexed on the event loop
_SENTENCE_END = re.compile(r"(?<=[\w)])\.\s|\n")
_MAX_DETAILS = 1000
_MAX_HINT = 200
_MAX_PARAMETERS = 60
_LISTING = frozenset({"list", "lists", "all"})


class CatalogSearch:
    """The search index of a catalog, updated by each search."""

    def __init__(self, specs: Callable[[], Sequence[ToolSpec]]) -> None:
        self._specs = specs
        self._is_stale = True
        self._wanted: Sequence[ToolSpec] | None = None
        self._index: SearchIndex | None = None
        self._turn = threading.Lock()

    def note_change(self, _: object) -> None:
        """Update the index at the next search."""
        self._is_stale = True

    async def find(self, query: str, limit: int, accepts: Callable[[ToolSpec], bool] | None) -> list[ToolSpec]:
        """Return the tools that match a query best, among those that `accepts` accepts."""
        return cast("list[ToolSpec]", await self._use(lambda index: index.find(query, limit, accepts)))

    async def correct(self, query: str) -> str | None:
        """Return the query with unknown words replaced by similar words of the catalog; None if there are none."""
        return cast("str | None", await self._use(lambda index: index.correct(query)))

    async def _use(self, work: Callable[[SearchIndex], Any]) -> Any:
        if self._is_stale:
            self._is_stale, self._wanted = False, self._specs()
        if self._index is not None and self._turn.acquire(blocking=False):
            try:
                if self._update(self._index, most=_FEW):
                    return work(self._index)
            finally:
                self._turn.release()
        return await run_in_thread(partial(self._use_in_thread, work))

    def _use_in_thread(self, work: Callable[[SearchIndex], Any]) -> Any:
        with self._turn:
            if self._index is None:
                from toolpost.catalog.search_vectors import open_vectors  # noqa: PLC0415 - imports an extra

                self._index = SearchIndex(open_vectors())
            self._update(self._index)
            return work(self._index)

    def _update(self, index: SearchIndex, most: int | None = None) -> bool:
        """Update the index; if more than `most` tools have changed, do nothing and return False."""
        wanted = self._wanted
        if wanted is None:
            return True
        removed, added = index.difference(wanted)
        if most is not None and len(removed) + len(added) > most:
            return False
        self._wanted = None if self._wanted is wanted else self._wanted  # it may have been replaced concurrently
        index.change(removed, added)
        return True


class _Tool(NamedTuple):
    """A tool in the index: the words of its source, its weighted terms and words, and whether it lists things."""

    spec: ToolSpec
    source: frozenset[str]
    terms: Mapping[str, float]
    words: Mapping[str, float]
    lists: bool


class _Query(NamedTuple):
    """A query: its words, and the factor of each tool for its source or effects, if any."""

    words: list[str]
    named: frozenset[str]
    factors: list[float] | None
    array: Any = None  # the factors as an array, for vectors


class SearchIndex:
    """Postings of terms by tool number, with the part of the BM25 score that does not depend on other tools."""

    def __init__(self, vectors: ToolVectors | None = None) -> None:
        self._vectors = vectors
        self._tools: dict[int, _Tool] = {}
        self._number_of: dict[str, int] = {}
        self._free: list[int] = []
        self._postings: dict[str, dict[int, float]] = {}
        self._spelled: dict[str, str] = {}
        self._sources: Counter[str] = Counter()
        self._factors: dict[tuple[frozenset[str], Effect | None, bool], tuple[list[float], Any]] = {}
        self._weighed: dict[str, dict[int, float]] = {}

    def difference(self, specs: Iterable[ToolSpec]) -> tuple[list[str], list[ToolSpec]]:
        """Return the names to remove and the records to add until the index contains exactly these tools."""
        indexed_specs = {name: self._tools[number].spec for name, number in self._number_of.items()}
        added = [spec for spec in specs if indexed_specs.pop(spec.name, None) is not spec]
        return [*indexed_specs, *(spec.name for spec in added if spec.name in self._number_of)], added

    def change(self, removed: Iterable[str], added: Sequence[ToolSpec]) -> None:
        """Remove tools by name, then add tools."""
        for name in removed:
            self._remove(self._number_of.pop(name))
        documents = {self._new_number(spec.name): _read_tool(spec) for spec in added}
        self._tools.update(documents)
        for number, tool in documents.items():
            self._post(number, tool)
        if self._vectors is not None:
            self._vectors.set({number: tool.words for number, tool in documents.items()})
        self._factors.clear()
        self._weighed.clear()

    def _new_number(self, name: str) -> int:
        self._number_of[name] = number = self._free.pop() if self._free else len(self._number_of)
        return number

    def _post(self, number: int, tool: _Tool) -> None:
        """Add a tool to the postings of its terms."""
        norm = _K1 * (1 - _B + _B * sum(tool.terms.values()) / _USUAL_LENGTH)
        for term, count in tool.terms.items():
            self._postings.setdefault(term, {})[number] = count * (_K1 + 1) / (count + norm)
        for word in tool.words:
            self._spelled.setdefault(stem(word), word)
        self._sources.update(tool.source)

    def _remove(self, number: int) -> None:
        tool = self._tools.pop(number)
        for term in tool.terms:
            posting = self._postings[term]
            del posting[number]
            if not posting:
                del self._postings[term]
        self._sources -= Counter(tool.source)
        self._free.append(number)
        if self._vectors is not None:
            self._vectors.clear(number)

    def find(self, query: str, limit: int, accepts: Callable[[ToolSpec], bool] | None = None) -> list[ToolSpec]:
        """Return at most `limit` tools that `accepts` accepts, the best first."""
        terms = self._read_query(query)
        depth = max(limit, _DEPTH)
        scores = self._score_words(terms)
        best = self._best(scores, depth, accepts)
        if self._vectors is not None:
            likeness = self._score_meaning(terms, self._vectors)
            like = self._best(self._vectors.similar(likeness, least=_LEAST_LIKENESS), depth, accepts)
            best = self._vectors.fuse(list(dict.fromkeys([*best, *like])), scores, likeness)
        return [self._tools[number].spec for number in best[:limit]]

    def _read_query(self, query: str) -> _Query:
        words = words_of_text(query[:_MAX_QUERY])
        named = frozenset(self._sources.keys() & words)
        many = begins_with_several(word for word in words if word not in named)
        effect: Effect | None = "read" if many else effect_of(words)
        if not named and effect is None:
            return _Query(words, named, None)
        wanted = (named, effect, many)
        if wanted not in self._factors:
            factors = [1.0] * (len(self._tools) + len(self._free))
            for number, tool in self._tools.items():
                source = 1.0 if named.isdisjoint(tool.source) else _NAMED_SOURCE
                lists = _LISTS if many and tool.lists else 1.0
                factors[number] = source * lists * (_SAME_EFFECT if _effect_of(tool.spec) == effect else 1.0)
            array = None if self._vectors is None else self._vectors.as_array(factors)
            self._factors[wanted] = (factors, array)
        return _Query(words, named, *self._factors[wanted])

    def _score_words(self, query: _Query) -> dict[int, float]:
        """Return the scores of the tools that contain terms of the query."""
        terms = dict.fromkeys(terms_of(query.words))  # in a fixed order: it affects the last digit of a sum
        postings = sorted([self._weigh(term) for term in terms if term in self._postings], key=len)
        most = _COMMON * len(self._tools)
        rare = [posting for posting in postings if len(posting) <= most]
        common = postings[len(rare) :]
        scores = rare.pop().copy() if rare else {}  # the longest posting: copying is fast
        for posting in rare:
            _add(posting, scores)
        for posting in common:
            if len(scores) < _DEPTH:
                _add(posting, scores)
            else:
                for number in scores.keys() & posting.keys():
                    scores[number] += posting[number]
        if (factors := query.factors) is not None:
            for number, score in scores.items():
                scores[number] = score * factors[number]
        return scores

    def _weigh(self, term: str) -> dict[int, float]:
        """Return the weight of a term for each tool that contains it; cached until the catalog changes."""
        weighed = self._weighed.get(term)
        if weighed is None:
            posting = self._postings[term]
            rarity = self._rarity(len(posting))
            weighed = self._weighed[term] = {number: rarity * part for number, part in posting.items()}
        return weighed

    def _score_meaning(self, query: _Query, vectors: ToolVectors) -> Matrix:
        """Return the similarity of each tool to the query, by number; names of sources are ignored."""
        words = Counter(word for word in query.words if word not in STOP_WORDS and word not in query.named)
        rarities = {word: self._rarity(len(self._postings.get(stem(word), ()))) for word in words}
        return vectors.likeness({word: words[word] * math.sqrt(rarities[word]) for word in words}, query.array)

    def _best(self, scores: Mapping[int, float], depth: int, accepts: Callable[[ToolSpec], bool] | None) -> list[int]:
        """Return the `depth` best accepted tools; tools with equal scores are ordered by name."""
        tools, score = self._tools, scores.__getitem__
        if accepts is not None:
            numbers, last = list[int](), 0.0
            for number in sorted(scores, key=score, reverse=True):
                if len(numbers) >= depth and scores[number] < last:
                    break
                if accepts(tools[number].spec):
                    numbers.append(number)
                    last = scores[number]
        elif len(scores) > depth:  # the others need not be sorted
            least = sorted(scores.values(), reverse=True)[depth - 1]
            numbers = [number for number, score in scores.items() if score >= least]
        else:
            numbers = list(scores)
        numbers.sort(key=lambda number: tools[number].spec.name)
        numbers.sort(key=score, reverse=True)  # stable
        return numbers[:depth]

    def _rarity(self, count: int) -> float:
        """Return the inverse document frequency of a term in `count` tools."""
        return math.log(1 + (len(self._tools) - count + 0.5) / (count + 0.5))

    def correct(self, query: str) -> str | None:
        """Return the query with unknown words replaced by similar known ones; None if there are none."""
        words = query[:_MAX_QUERY].split()
        corrected = [self._nearest(word) for word in words]
        return None if corrected == words else " ".join(corrected)

    def _nearest(self, word: str) -> str:
        if set(terms_of(words_of_text(word))) & self._postings.keys():
            return word
        small = word.lower()
        near = [
            spelling
            for stemmed, spelling in self._spelled.items()
            if abs(len(spelling) - len(small)) <= 2 and spelling[0] == small[0] and stemmed in self._postings
        ]
        return nearest(small, near, cutoff=0.7) or word


def _add(posting: Mapping[int, float], scores: dict[int, float]) -> None:
    for number, part in posting.items():
        scores[number] = scores.get(number, 0.0) + part


def _effect_of(spec: ToolSpec) -> Effect:
    if not spec.has_effects:
        return "read"
    return "delete" if spec.safety.destructive else "change"


def _read_tool(spec: ToolSpec) -> _Tool:
    """Weigh the terms and words of a tool by place: the name and the summary have the highest weights."""
    source = frozenset(words_of_name(spec.source))
    summary, details = _split(spec.description)
    parameters = list(islice(_parameters(spec.input_schema), _MAX_PARAMETERS))
    places: list[tuple[float, float, list[str]]] = [  # weight of terms, weight of words
        (3.0, 1.0, words_of_name(spec.name.removeprefix(f"{spec.source}."))),
        (2.0, 1.0, [word for word in words_of_text(summary) if word not in source]),
        (0.3, 0.1, [word for word in words_of_text(details) if word not in source]),
        (0.3, 0.1, words_of_name(" ".join(name for name, _ in parameters))),
        (0.1, 0.0, words_of_text(" ".join(hint for _, hint in parameters))),
        (0.3, 0.0, [word for word in words_of_text(" ".join(spec.tags)) if word not in source]),
    ]
    terms: dict[str, float] = {}
    words: dict[str, float] = {}
    for term_weight, word_weight, text_words in places:
        for term in terms_of(text_words):
            terms[term] = terms.get(term, 0.0) + term_weight
        for word in text_words if word_weight else ():
            if word not in STOP_WORDS:
                words[word] = words.get(word, 0.0) + word_weight
    return _Tool(spec, source, terms, words, lists=not _LISTING.isdisjoint(words))


def _split(description: str) -> tuple[str, str]:
    """Split a description into its first sentence and the rest."""
    summary, *rest = _SENTENCE_END.split(description, maxsplit=1)
    return summary[:_MAX_DETAILS], "".join(rest)[:_MAX_DETAILS]


def _parameters(schema: JsonSchema) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a schema with their descriptions, including those of nested objects."""
    properties = schema.get("properties")
    for name, part in properties.items() if is_object(properties) else ():
        hint = part.get("description") if is_object(part) else None
        yield str(name), hint[:_MAX_HINT] if isinstance(hint, str) else ""
    for part in properties.values() if is_object(properties) else ():
        if is_object(part) and is_object(part.get("properties")):
            yield from _parameters(part)

"""Search in the catalog: by words with BM25, and with the extra `search` also by meaning.

The index has names, descriptions, parameters and tags. It follows the catalog: a search indexes what has changed since
the last one, in a thread where that is much. The best by words and by meaning are ordered by the sum of both scores.

Words are split, without stop words, stemmed, with common synonyms. Their vectors are those of WordLlama's static model,
which comes in its wheel: nothing is downloaded, and a word has one vector whatever stands around it. What is kept of a
tool depends on the tool alone, so that a catalog is ranked in one way, however it came to be.
"""

from __future__ import annotations

import math
import re
import threading
from collections import Counter
from functools import cache, lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from toolpost.catalog.threads import run_in_thread
from toolpost.contracts.errors import nearest
from toolpost.schema.json_values import is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from toolpost.contracts.spec import JsonSchema, ToolSpec

    Matrix = NDArray[np.float32]

_MAX_QUERY = 1000  # characters that are read of a query
_K1, _B = 1.2, 0.75  # of BM25: how soon a repeated term counts no more, and how much long texts are discounted
# The weight of the terms of an ordinary tool. BM25 takes the average of all texts; with that, scores would depend on
# which tools came first, or all be computed again with every tool that comes or goes.
_USUAL_LENGTH = 40.0
_COMMON = 0.2  # the share of tools from which on a term only orders what rarer terms found
_MEANING = 0.7  # what meaning counts beside words
_DEPTH = 50  # so many of each ranking are ordered by both
_NAMED_SOURCE = 2.5  # what a tool counts more if the query names its source,
_SAME_EFFECT = 1.2  # and if it reads, changes or deletes as the query wants,
_LISTS = 1.2  # and if it lists, and the query begins with several of something
_LEAST_LIKENESS = 0.35
_FEW = 20  # so many changed tools are indexed within the event loop
_SENTENCE_END = re.compile(r"(?<=[\w)])\.\s|\n")
_MAX_DETAILS = 1000
_MAX_HINT = 200
_MAX_PARAMETERS = 60
Effect = Literal["read", "change", "delete"]

_WORD = re.compile(r"[^\W_]+")
# The parts of a name in camelCase: `listHTTPRoutesV2` is list, HTTP, Routes, V2.
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+[0-9]*|[A-Z]+[0-9]*|[0-9]+|[^\W_A-Za-z0-9]+")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")  # Chinese, Japanese and Korean

_STOP_WORDS = (
    "a an and are as at be but by can did do does for from had has have how i if in into is it its may me my no not of",
    "on or our s so such t that the their then there these they this to us was we what which who will with you your",
    "please want need would should could some any",
)
STOP_WORDS = frozenset(word for line in _STOP_WORDS for word in line.split())

# Both sides are written one way: what people shorten, and words for one thing.
_SAME_WORDS = (
    "admin=administrator app=application apps=application auth=authentication cert=certificate config=configuration",
    "db=database dir=directory doc=document docs=documents env=environment folder=directory folders=directory",
    "img=image info=information k8s=kubernetes licence=license mail=email msg=message org=organization",
    "organisation=organization orgs=organization param=parameter photo=image picture=image pr=pull+request",
    "prs=pull+request repo=repository repos=repository ssl=tls stats=statistics ticket=issue tickets=issues",
    "var=variable",
)
_SAME = {
    short: whole.split("+")
    for line in _SAME_WORDS
    for short, _, whole in (pair.partition("=") for pair in line.split())
}

# Words for what tools do; a word counts as itself and, less, as its action.
_ACTIONS = (
    "create add new make open register insert post establish launch",
    "delete remove erase drop destroy",
    "list show all browse",
    "get read fetch retrieve show view inspect see",
    "update edit change modify patch set replace put alter",
    "search find query look lookup",
    "cancel stop abort end terminate",
    "start run launch execute trigger",
    "user person people member",
)

# Verbs and question words that say what the wanted tool does to the world; the first one of a query counts.
_EFFECTS: dict[Effect, str] = {
    "read": "list show browse get read fetch retrieve view inspect see search find query look lookup what which who how"
    " whose where when why is has did does",
    "change": "create add new make open register insert post update edit change modify patch set replace put send start"
    " run execute trigger launch upload attach write save move rename merge transfer assign invite publish enable"
    " schedule approve give turn switch stop restart mark lock pin pay subscribe sign convert reply comment",
    "delete": "delete remove erase drop destroy cancel clear revoke kick prune purge",
}
_LISTING = frozenset({"list", "lists", "all"})
_WIDTH = 256


class CatalogSearch:
    """The search index of a catalog, kept up to date when it is asked."""

    def __init__(self, specs: Callable[[], Sequence[ToolSpec]]) -> None:
        self._specs = specs
        self._is_stale = True
        self._wanted: Sequence[ToolSpec] | None = None
        self._index: SearchIndex | None = None
        self._turn = threading.Lock()

    def note_change(self, _: object) -> None:
        """Look at the catalog again at the next search."""
        self._is_stale = True

    async def find(self, query: str, limit: int, accepts: Callable[[ToolSpec], bool] | None) -> list[ToolSpec]:
        """Return the tools that fit a query best, of those that `accepts` accepts."""
        return cast("list[ToolSpec]", await self._use(lambda index: index.find(query, limit, accepts)))

    async def correct(self, query: str) -> str | None:
        """Return the query with words that the catalog has for those that it does not; None where none are near."""
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
                self._index = SearchIndex(open_vectors())
            self._update(self._index)
            return work(self._index)

    def _update(self, index: SearchIndex, most: int | None = None) -> bool:
        """Bring the index up to date; False, and nothing is done, where more than `most` tools have changed."""
        wanted = self._wanted
        if wanted is None:
            return True
        removed, added = index.difference(wanted)
        if most is not None and len(removed) + len(added) > most:
            return False
        self._wanted = None if self._wanted is wanted else self._wanted  # it may have been replaced meanwhile
        index.change(removed, added)
        return True


class _Tool(NamedTuple):
    """A tool in the index: the words of its source, its terms, its words with their weights, and whether it lists."""

    spec: ToolSpec
    source: frozenset[str]
    terms: Mapping[str, float]
    words: Mapping[str, float]
    lists: bool


class _Query(NamedTuple):
    """A query: its words, and the factor by which each tool counts more for its source or its effects, if any do."""

    words: list[str]
    named: frozenset[str]
    factors: list[float] | None
    array: Any = None  # the factors once more, for vectors


class SearchIndex:
    """Postings of terms by number of tool, with the part of a BM25 score that does not change with other tools."""

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
        """Return the names of tools to remove and the records to add, so that the index has these tools."""
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
        """Return the scores of the tools that have terms of the query."""
        terms = dict.fromkeys(terms_of(query.words))  # in one order: it tells in the last digit of a sum
        postings = sorted([self._weigh(term) for term in terms if term in self._postings], key=len)
        most = _COMMON * len(self._tools)
        rare = [posting for posting in postings if len(posting) <= most]
        common = postings[len(rare) :]
        scores = rare.pop().copy() if rare else {}  # the longest, in hardly any time
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
        """Return what a term adds to the score of each tool that has it; kept until a tool comes or goes."""
        weighed = self._weighed.get(term)
        if weighed is None:
            posting = self._postings[term]
            rarity = self._rarity(len(posting))
            weighed = self._weighed[term] = {number: rarity * part for number, part in posting.items()}
        return weighed

    def _score_meaning(self, query: _Query, vectors: ToolVectors) -> Matrix:
        """Return how like the query each tool is, by number; the name of a source means nothing."""
        words = Counter(word for word in query.words if word not in STOP_WORDS and word not in query.named)
        rarities = {word: self._rarity(len(self._postings.get(stem(word), ()))) for word in words}
        return vectors.likeness({word: words[word] * math.sqrt(rarities[word]) for word in words}, query.array)

    def _best(self, scores: Mapping[int, float], depth: int, accepts: Callable[[ToolSpec], bool] | None) -> list[int]:
        """Return the `depth` best tools that are accepted; where scores are the same, by name."""
        tools, score = self._tools, scores.__getitem__
        if accepts is not None:
            numbers, last = list[int](), 0.0
            for number in sorted(scores, key=score, reverse=True):
                if len(numbers) >= depth and scores[number] < last:
                    break
                if accepts(tools[number].spec):
                    numbers.append(number)
                    last = scores[number]
        elif len(scores) > depth:  # the others need not be put in order
            least = sorted(scores.values(), reverse=True)[depth - 1]
            numbers = [number for number, score in scores.items() if score >= least]
        else:
            numbers = list(scores)
        numbers.sort(key=lambda number: tools[number].spec.name)
        numbers.sort(key=score, reverse=True)  # stable
        return numbers[:depth]

    def _rarity(self, count: int) -> float:
        """Return the inverse document frequency of a term that so many tools have."""
        return math.log(1 + (len(self._tools) - count + 0.5) / (count + 0.5))

    def correct(self, query: str) -> str | None:
        """Return the query with known words for unknown ones; None where none are near."""
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
    """Weigh the terms and words of a tool by where they stand: the name and the summary say most."""
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
    """Yield the parameters of a schema with what is said of them, those of objects among them too."""
    properties = schema.get("properties")
    for name, part in properties.items() if is_object(properties) else ():
        hint = part.get("description") if is_object(part) else None
        yield str(name), hint[:_MAX_HINT] if isinstance(hint, str) else ""
    for part in properties.values() if is_object(properties) else ():
        if is_object(part) and is_object(part.get("properties")):
            yield from _parameters(part)


def words_of_name(name: str) -> list[str]:
    """Split a name at dots, underscores, other signs and camelCase."""
    words = (word for word in _WORD.findall(name))
    parts = (part for word in words for part in ([word] if word == word.lower() else _PART.findall(word)))
    return [whole for part in parts for whole in _wholes(part.lower())]


def words_of_text(text: str) -> list[str]:
    """Split prose. `GitHub` stays one word, `createIssue` is a name, and PRs are several of a PR."""
    return [whole for word in _WORD.findall(text) for part in _parts(word) for whole in _wholes(part)]


def _parts(word: str) -> Iterator[str]:
    if word == word.lower():
        yield word
    elif word[0].islower():
        yield from (part.lower() for part in _PART.findall(word))
    elif word[-1] == "s" and word[:-1].isupper() and len(word) > 2:
        yield word[:-1].lower()
    else:
        yield word.lower()


def _wholes(word: str) -> Sequence[str]:
    """Return a word with what is short written out; text without spaces is cut into pairs of characters."""
    if _UNSPACED.search(word):
        return [word[at : at + 2] for at in range(max(1, len(word) - 1))]
    return _SAME.get(word, (word,))


def terms_of(words: Sequence[str]) -> list[str]:
    """Return the terms of words: stems, and the actions that words stand for."""
    return [term for word in words for term in _terms(word)]


@lru_cache(maxsize=50_000)
def _terms(word: str) -> tuple[str, ...]:
    if word in STOP_WORDS:
        return ()
    stemmed = stem(word)
    return (stemmed, *_ACTION_OF.get(stemmed, ()))


def effect_of(words: Sequence[str]) -> Effect | None:
    """Return what the words of a query want to be done; None where no word says so."""
    return next((_EFFECT_OF[word] for word in words if word in _EFFECT_OF), None)


def begins_with_several(words: Iterable[str]) -> bool:
    """Return whether a query begins with a plural: it names what is to be shown, for a command has none."""
    first = next((word for word in words if word not in STOP_WORDS), "")
    return first == "people" or (len(first) > 3 and first[-1] == "s" and not first.endswith(("ss", "us", "is")))


def stem(word: str) -> str:
    """Cut endings of English words, so that creates, created, creating and creation are one."""
    if len(word) < 4 or not word.isascii():
        return word
    if word.endswith("ies") and len(word) > 4:
        word = f"{word[:-3]}y"
    elif word[-1] == "s" and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending, least in (("ing", 3), ("ed", 3), ("ion", 4), ("er", 4), ("or", 4)):
        rest = word.removesuffix(ending)
        if rest != word and len(rest) >= least and not _VOWELS.isdisjoint(rest):
            word = rest[:-1] if len(rest) > 3 and rest[-1] == rest[-2] and rest[-1] not in "lsz" else rest
            break
    return word[:-1] if word[-1] == "e" and len(word) > 3 else word


_VOWELS = frozenset("aeiouy")


def _actions() -> dict[str, tuple[str, ...]]:
    actions: dict[str, tuple[str, ...]] = {}
    for group in _ACTIONS:
        first, *others = group.split()
        for word in (first, *others):
            stemmed = stem(word)
            actions[stemmed] = (*actions.get(stemmed, ()), f"={first}")
    return actions


_ACTION_OF = _actions()
_EFFECT_OF: dict[str, Effect] = {word: effect for effect, words in _EFFECTS.items() for word in words.split()}


def open_vectors() -> ToolVectors | None:
    """Load the model; None where the extra `search` is not installed. Takes a while: call it in a thread."""
    model = _load_model()
    return None if model is None else ToolVectors(lambda words: model.embed(words, norm=False))


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

    def likeness(self, words: Mapping[str, float], factors: Matrix | None) -> Matrix:
        """Return how like the words each tool is; `factors` are by how much more each counts."""
        self._add_words(words)
        # One product a row: a product of the whole matrix would wake threads, for longer than it takes.
        likeness: Matrix = self._np.vecdot(self._tools, self._sum(words))
        if factors is not None:
            likeness[: len(factors)] *= factors
        return likeness

    def similar(self, likeness: Matrix, *, least: float) -> dict[int, float]:
        """Return how like something those tools are that are so by at least `least`."""
        rows = self._np.flatnonzero(likeness >= least)
        return dict(zip(rows.tolist(), likeness[rows].tolist(), strict=True))

    def fuse(self, tools: list[int], scores: Mapping[int, float], likeness: Matrix) -> list[int]:
        """Order tools by the sum of what they score by words and by meaning, as shares of the best of them."""
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
        # The length of a vector is the weight that the model gives the word; as of rarity, its square root counts.
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

"""The language of tool search: words, stems, synonyms, and the action that a query requests."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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

# Abbreviations and synonyms, replaced in queries and in tools.
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

# Synonyms of actions: a word matches itself and, with less weight, the first word of its group.
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

# Verbs and question words that show the requested effect; the first one of a query decides.
_EFFECTS: dict[Effect, str] = {
    "read": "list show browse get read fetch retrieve view inspect see search find query look lookup what which who how"
    " whose where when why is has did does",
    "change": "create add new make open register insert post update edit change modify patch set replace put send start"
    " run execute trigger launch upload attach write save move rename merge transfer assign invite publish enable"
    " schedule approve give turn switch stop restart mark lock pin pay subscribe sign convert reply comment",
    "delete": "delete remove erase drop destroy cancel clear revoke kick prune purge",
}
_EFFECT_OF: dict[str, Effect] = {word: effect for effect, words in _EFFECTS.items() for word in words.split()}
_VOWELS = frozenset("aeiouy")


def words_of_name(name: str) -> list[str]:
    """Split a name at dots, underscores, other signs and camelCase."""
    words = _WORD.findall(name)
    parts = (part for word in words for part in ([word] if word == word.lower() else _PART.findall(word)))
    return [whole for part in parts for whole in _wholes(part.lower())]


def words_of_text(text: str) -> list[str]:
    """Split prose. `GitHub` stays one word, `createIssue` is a name, and `PRs` is the plural of `PR`."""
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
    """Return a word with abbreviations expanded; text without spaces is split into pairs of characters."""
    if _UNSPACED.search(word):
        return [word[at : at + 2] for at in range(max(1, len(word) - 1))]
    return _SAME.get(word, (word,))


def terms_of(words: Sequence[str]) -> list[str]:
    """Return the terms of words: stems, and the actions of verbs."""
    return [term for word in words for term in _terms(word)]


@lru_cache(maxsize=50_000)
def _terms(word: str) -> tuple[str, ...]:
    if word in STOP_WORDS:
        return ()
    stemmed = stem(word)
    return (stemmed, *_actions().get(stemmed, ()))


def effect_of(words: Sequence[str]) -> Effect | None:
    """Return the effect that a query requests; None if no word shows one."""
    return next((_EFFECT_OF[word] for word in words if word in _EFFECT_OF), None)


def begins_with_several(words: Iterable[str]) -> bool:
    """Return whether a query begins with a plural: it then requests a list, because commands begin with a verb."""
    first = next((word for word in words if word not in STOP_WORDS), "")
    return first == "people" or (len(first) > 3 and first[-1] == "s" and not first.endswith(("ss", "us", "is")))


def stem(word: str) -> str:
    """Remove endings of English words: creates, created, creating and creation have one stem."""
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


@cache
def _actions() -> dict[str, tuple[str, ...]]:
    actions: dict[str, tuple[str, ...]] = {}
    for group in _ACTIONS:
        first, *others = group.split()
        for word in (first, *others):
            stemmed = stem(word)
            actions[stemmed] = (*actions.get(stemmed, ()), f"={first}")
    return actions

"""Find the known name that is closest to a misspelled one."""

from __future__ import annotations

from collections.abc import Iterable

_MAX_NAMES = 1000  # compared within 30 ms
_KEPT = (0.5, 0.75, 0.9)  # one wrong letter leaves one half unchanged, one near an end leaves more
_AFTER_SOURCE = (".", "__")  # in names of the catalog, and in those for models
_MAX_COMPARED = 128  # the comparison is quadratic, and a longer name is not a typing error


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name closest to `name`; None if none is close, or `name` is too long to compare.

    Of thousands of names only those with the same beginning or end are compared. The common prefix of a source does not
    make names closer: otherwise the suggestion would be an unrelated tool of the same source.
    """
    from difflib import get_close_matches  # noqa: PLC0415 - most programs never need it

    if len(name) > _MAX_COMPARED:
        return None
    names = list(known)
    for share in _KEPT:
        if len(names) > _MAX_NAMES:
            names = _similar_edges(name, names, int(len(name) * share))
    for one in get_close_matches(name, names[:_MAX_NAMES], n=3, cutoff=cutoff):
        source = next((name[: name.index(mark) + len(mark)] for mark in _AFTER_SOURCE if mark in name), "")
        rest = len(source) if one.startswith(source) else 0
        if get_close_matches(name[rest:], [one[rest:]], cutoff=cutoff):
            return one
    return None


def _similar_edges(name: str, names: list[str], size: int) -> list[str]:
    """Return the names that begin or end with so many characters of `name`; all names if none does."""
    begin, end = name[:size], name[len(name) - size :]
    return [one for one in names if one.startswith(begin) or one.endswith(end)] or names


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `did you mean 'x'?` for the known name closest to `name`, or an empty string."""
    near = nearest(name, known)
    return f"did you mean {near!r}?" if near else ""

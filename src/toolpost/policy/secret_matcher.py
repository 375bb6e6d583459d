"""Find known secrets, in all their encoded forms, and mask them."""

from __future__ import annotations

import re
import time
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from toolpost.contracts.expiring_secret import ExpiringSecret
from toolpost.policy.secret_forms import SHORTEST, exact_forms_of, forms_of, normalize, original_index

_SHORTEST_SECRET = 4  # shorter values would match ordinary text
_SHORTEST_LINE = 12
_NUMBER = re.compile(r"[-+.\deE]+")
_CUT = re.compile(r"…|\.\.\.")
# The index is probed at every fourth position of a text. It contains the last four pieces of each form, which are found
# at any position. The end of a form is indexed, because tokens of one issuer begin alike. Longer pieces have fewer
# false hits, but a form must be long enough for them.
_STRIDE = 4
_LONG, _SHORT = 16, SHORTEST - _STRIDE + 1
_LEAST_CUT = 12  # shorter beginnings of a secret before an ellipsis may be coincidence
_MOST_CUT = 512
_FEW, _VERY_FEW = 48, 14  # up to so many forms, one `in` per form is faster, in a long text and in a short one
_LONG_TEXT = 400
_PURGE_INTERVAL_S = 60.0
_MOST_PURGED = 50


class SecretMatcher:
    """Set of secrets that masks all their encoded forms. The cost of adding a secret does not depend on their number.

    An `ExpiringSecret` is removed after it has expired, unless it was added again or as a permanent one. `numbers` are
    the secrets that may appear as a JSON number; `longest` is the length of the longest form.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.is_empty = True
        self.longest = 0
        self.numbers: set[str] = set()
        self._forms: list[str] = []  # sorted, for lookup by prefix
        self._beginnings: dict[str, int] = {}
        self._long: dict[str, tuple[str, ...]] = {}
        self._short: dict[str, tuple[str, ...]] = {}
        self._exact: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self._clock = clock
        self._permanent: set[str] = set()
        self._expiring: dict[str, float] = {}  # secret to expiry time
        self._shared: dict[str, int] = {}  # form to the number of further secrets with that form
        self._next_purge_at = 0.0

    def learn(self, secret: str) -> None:
        """Add a secret; one under four characters is ignored, because it would match ordinary text."""
        if len(secret.strip()) < _SHORTEST_SECRET or secret in self._permanent:
            return
        is_learned = secret in self._expiring
        if isinstance(secret, ExpiringSecret):
            text, now = str(secret), self._clock()
            self._purge_expired(now)
            self._expiring[text] = max(now + secret.for_s, self._expiring.get(text, 0.0))
        else:
            text = secret
            self._expiring.pop(text, None)
            self._permanent.add(text)
        if not is_learned:
            self._add_secret(text)

    def learn_lines(self, secret: str) -> None:
        """Add each line of a secret with several lines; short lines are ignored."""
        for line in secret.splitlines():
            if len(line.strip()) >= _SHORTEST_LINE:
                self.learn(ExpiringSecret(line, secret.for_s) if isinstance(secret, ExpiringSecret) else line)

    def _add_secret(self, secret: str) -> None:
        self.is_empty = False
        if _NUMBER.fullmatch(secret):
            self.numbers.add(secret)
        forms = forms_of(secret)
        if not forms:
            self._exact |= exact_forms_of(secret)
            self._pattern = None  # compiled on next use, once for many additions
            self.longest = max(self.longest, *map(len, self._exact))
        for form in forms:
            size, index = self._index_of(form)
            if form in index.get(form[-size:], ()):
                self._shared[form] = self._shared.get(form, 0) + 1
                continue
            insort(self._forms, form)
            beginning = form[:_LEAST_CUT]
            self._beginnings[beginning] = self._beginnings.get(beginning, 0) + 1
            self.longest = max(self.longest, len(form))
            for piece in _pieces(form, size):
                index[piece] = (*index.get(piece, ()), form)

    def _index_of(self, form: str) -> tuple[int, dict[str, tuple[str, ...]]]:
        """Return the piece size and the index that a form belongs to."""
        return (_LONG, self._long) if len(form) >= _LONG + _STRIDE - 1 else (_SHORT, self._short)

    def _purge_expired(self, now: float) -> None:
        """Remove expired secrets: at most once a minute and few at a time, because a call waits for it."""
        if now < self._next_purge_at:
            return
        expired = list(islice((secret for secret, until in self._expiring.items() if until <= now), _MOST_PURGED))
        self._next_purge_at = now + (_PURGE_INTERVAL_S if len(expired) < _MOST_PURGED else 0.0)
        for secret in expired:
            del self._expiring[secret]
            self._remove(secret)

    def _remove(self, secret: str) -> None:
        """Remove the forms of a secret; forms that match only as written are few and stay."""
        forms = forms_of(secret)
        if forms:
            self.numbers.discard(secret)
        for form in forms:
            if others := self._shared.pop(form, 0):
                if others > 1:
                    self._shared[form] = others - 1
                continue
            del self._forms[bisect_left(self._forms, form)]
            _decrement(self._beginnings, form[:_LEAST_CUT])
            size, index = self._index_of(form)
            for piece in _pieces(form, size):
                left = tuple(other for other in index[piece] if other != form)
                if left:
                    index[piece] = left
                else:
                    del index[piece]

    def mask(self, text: str, mask: str) -> str:
        """Return the text with every secret replaced by the mask."""
        if self.is_empty:
            return text
        # Folding case never lengthens ASCII; other text it does, as in `ß` and `ss`.
        if self._forms and (len(text) >= SHORTEST or not text.isascii()) and (spans := self._spans(text)):
            text = _mask_spans(text, spans, mask)
        if not self._exact:
            return text
        if self._pattern is None:
            self._pattern = re.compile("|".join(map(re.escape, sorted(self._exact, key=len, reverse=True))))
        return self._pattern.sub(mask, text)

    def _spans(self, text: str) -> list[tuple[int, int]]:
        plain = normalize(text)
        spans = list(self._whole_spans(plain)) if self._may_match(plain) else []
        if _CUT.search(text):
            spans += self._cut_spans(plain)
        if not spans:
            return []
        place = original_index(text)
        return [(place(begin), place(end - 1) + 1) for begin, end in spans]

    def _may_match(self, plain: str) -> bool:
        """Return False if the text certainly contains no form, as most texts do."""
        if len(self._forms) <= (_FEW if len(plain) > _LONG_TEXT else _VERY_FEW):
            return any([form in plain for form in self._forms])  # noqa: C419 - faster than a generator for few forms
        places = range(0, len(plain) - _SHORT + 1, _STRIDE)
        return not self._long.keys().isdisjoint([plain[at : at + _LONG] for at in places]) or (
            bool(self._short) and not self._short.keys().isdisjoint([plain[at : at + _SHORT] for at in places])
        )

    def _whole_spans(self, plain: str) -> Iterator[tuple[int, int]]:
        for size, index in ((_LONG, self._long), (_SHORT, self._short)):
            for at in range(0, len(plain) - size + 1, _STRIDE) if index else ():
                for form in index.get(plain[at : at + size], ()):
                    # The piece ends at one of the last four positions of the form.
                    for end in range(at + size, at + size + _STRIDE):
                        if plain.endswith(form, 0, end) and end <= len(plain):
                            yield end - len(form), end

    def _cut_spans(self, plain: str) -> Iterator[tuple[int, int]]:
        """Yield the prefixes of forms before an ellipsis; no position is examined twice."""
        examined = 0
        for match in _CUT.finditer(plain):
            end = match.start()
            beyond = end - _LEAST_CUT + 1
            for begin in range(max(examined, end - _MOST_CUT), beyond):
                if plain[begin : begin + _LEAST_CUT] in self._beginnings and self._is_form_prefix(plain[begin:end]):
                    yield begin, end
            examined = max(examined, beyond)

    def _is_form_prefix(self, text: str) -> bool:
        """Return whether any form begins with a text."""
        at = bisect_left(self._forms, text)
        return at < len(self._forms) and self._forms[at].startswith(text)


def _pieces(form: str, size: int) -> set[str]:
    """Return the last pieces of a form, one per alignment of the probes."""
    last = len(form) - size
    return {form[start : start + size] for start in range(last - _STRIDE + 1, last + 1)}


def _decrement(counts: dict[str, int], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def _mask_spans(text: str, spans: Iterable[tuple[int, int]], mask: str) -> str:
    """Replace spans by the mask; overlapping spans become one mask."""
    parts: list[str] = []
    last = 0
    for begin, end in sorted(spans):
        if begin >= last:
            parts += (text[last:begin], mask)
        last = max(last, end)
    return "".join((*parts, text[last:]))

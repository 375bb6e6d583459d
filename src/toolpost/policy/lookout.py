"""Finds known secrets in texts, in time linear in the text, and learns more without looking back."""

from __future__ import annotations

import re
import time
from bisect import bisect_left, insort
from itertools import islice
from typing import TYPE_CHECKING

from toolpost.contracts.passing import PassingSecret
from toolpost.policy.disguises import SHORTEST, close_forms_of, forms_of, place_in, plainly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_SHORTEST_SECRET = 4  # shorter values would blot out ordinary text
_SHORTEST_LINE = 12
_NUMBER = re.compile(r"[-+.\deE]+")
_CUT = re.compile(r"…|\.\.\.")
# Of a text every fourth place is looked at, and of a form the last four are known: wherever it stands, one of them is
# met. The end of a form, because tokens of one issuer begin alike. More characters are met by chance less often, but
# there must be that many.
_STRIDE = 4
_LONG, _SHORT = 16, SHORTEST - _STRIDE + 1
_LEAST_CUT = 12  # so much of a secret, at the end of a text that was cut, is told apart from chance
_MOST_CUT = 512
_FEW, _VERY_FEW = 48, 14  # so many forms are sooner looked for one by one, in a long text and in a short one
_LONG_TEXT = 400
_LOOK_BACK_S = 60.0
_MOST_FORGOTTEN = 50


class Lookout:
    """Knows secrets by the forms they take; learning one more costs the same however many are known.

    A `PassingSecret` is forgotten when its time is over, unless it was learned again meanwhile, or as one that lasts.
    `numbers` are those secrets that may come as one; `longest` is the length of the longest form.
    """

    __slots__ = (
        "_beginnings",
        "_clock",
        "_close",
        "_forms",
        "_lasting",
        "_long",
        "_look_back_at",
        "_passing",
        "_pattern",
        "_shared",
        "_short",
        "knows_nothing",
        "longest",
        "numbers",
    )

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.knows_nothing = True
        self.longest = 0
        self.numbers: set[str] = set()
        self._forms: list[str] = []  # in order, so that those with one beginning stand together
        self._beginnings: dict[str, int] = {}
        self._long: dict[str, tuple[str, ...]] = {}
        self._short: dict[str, tuple[str, ...]] = {}
        self._close: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self._clock = clock
        self._lasting: set[str] = set()
        self._passing: dict[str, float] = {}  # by when each is over
        self._shared: dict[str, int] = {}  # how many more secrets than one have a form
        self._look_back_at = 0.0

    def learn(self, secret: str) -> None:
        """Watch for one more; a very short one would be found everywhere and is not watched for."""
        if len(secret.strip()) < _SHORTEST_SECRET or secret in self._lasting:
            return
        known = secret in self._passing
        if isinstance(secret, PassingSecret):
            text, now = str(secret), self._clock()
            self._look_back(now)
            self._passing[text] = max(now + secret.for_s, self._passing.get(text, 0.0))
        else:
            text = secret
            self._passing.pop(text, None)
            self._lasting.add(text)
        if not known:
            self._watch_for(text)

    def learn_lines(self, secret: str) -> None:
        """Watch for each line of a secret that has several; a short one tells little, and would be found everywhere."""
        for line in secret.splitlines():
            if len(line.strip()) >= _SHORTEST_LINE:
                self.learn(PassingSecret(line, secret.for_s) if isinstance(secret, PassingSecret) else line)

    def _watch_for(self, secret: str) -> None:
        self.knows_nothing = False
        if _NUMBER.fullmatch(secret):
            self.numbers.add(secret)
        forms = forms_of(secret)
        if not forms:
            self._close |= close_forms_of(secret)
            self._pattern = None  # made when it is needed, for many at once
            self.longest = max(self.longest, *map(len, self._close))
        for form in forms:
            size, known = self._known_by(form)
            if form in known.get(form[-size:], ()):
                self._shared[form] = self._shared.get(form, 0) + 1
                continue
            self._add(form)
            for piece in _pieces(form, size):
                known[piece] = (*known.get(piece, ()), form)

    def _add(self, form: str) -> None:
        insort(self._forms, form)
        beginning = form[:_LEAST_CUT]
        self._beginnings[beginning] = self._beginnings.get(beginning, 0) + 1
        self.longest = max(self.longest, len(form))

    def _known_by(self, form: str) -> tuple[int, dict[str, tuple[str, ...]]]:
        """How many characters a form is known by, and where."""
        return (_LONG, self._long) if len(form) >= _LONG + _STRIDE - 1 else (_SHORT, self._short)

    def _look_back(self, now: float) -> None:
        """Forget what is over: not at every turn, and few at a time, because somebody waits."""
        if now < self._look_back_at:
            return
        over = list(islice((secret for secret, until in self._passing.items() if until <= now), _MOST_FORGOTTEN))
        self._look_back_at = now + (_LOOK_BACK_S if len(over) < _MOST_FORGOTTEN else 0.0)
        for secret in over:
            del self._passing[secret]
            self._forget(secret)

    def _forget(self, secret: str) -> None:
        """Watch for one less; those that are looked for as they are written are so few that they are left."""
        forms = forms_of(secret)
        if forms:
            self.numbers.discard(secret)
        for form in forms:
            if others := self._shared.pop(form, 0):
                if others > 1:
                    self._shared[form] = others - 1
                continue
            del self._forms[bisect_left(self._forms, form)]
            _take_one(self._beginnings, form[:_LEAST_CUT])
            size, known = self._known_by(form)
            for piece in _pieces(form, size):
                left = tuple(other for other in known[piece] if other != form)
                if left:
                    known[piece] = left
                else:
                    del known[piece]

    def without(self, text: str, mask: str) -> str:
        """The text with a mask in place of every secret."""
        if self.knows_nothing:
            return text
        if len(text) >= SHORTEST and self._forms and (spans := self._spans(text)):
            text = _masked(text, spans, mask)
        if not self._close:
            return text
        if self._pattern is None:
            self._pattern = re.compile("|".join(map(re.escape, sorted(self._close, key=len, reverse=True))))
        return self._pattern.sub(mask, text)

    def _spans(self, text: str) -> list[tuple[int, int]]:
        plain = plainly(text)
        found = list(self._whole(plain)) if self._may_hold(plain) else []
        if _CUT.search(text):
            found += self._cut(plain)
        if not found:
            return []
        place = place_in(text)
        return [(place(begin), place(end - 1) + 1) for begin, end in found]

    def _may_hold(self, plain: str) -> bool:
        """Whether it is worth a second look; for most texts it is not."""
        if len(self._forms) <= (_FEW if len(plain) > _LONG_TEXT else _VERY_FEW):
            return any([form in plain for form in self._forms])  # noqa: C419 - of few, a list is made sooner
        places = range(0, len(plain) - _SHORT + 1, _STRIDE)
        return not self._long.keys().isdisjoint([plain[at : at + _LONG] for at in places]) or (
            bool(self._short) and not self._short.keys().isdisjoint([plain[at : at + _SHORT] for at in places])
        )

    def _whole(self, plain: str) -> Iterator[tuple[int, int]]:
        for size, known in ((_LONG, self._long), (_SHORT, self._short)):
            for at in range(0, len(plain) - size + 1, _STRIDE) if known else ():
                for form in known.get(plain[at : at + size], ()):
                    # The piece ends at one of the last four places of the form.
                    for end in range(at + size, at + size + _STRIDE):
                        if plain.endswith(form, 0, end) and end <= len(plain):
                            yield end - len(form), end

    def _cut(self, plain: str) -> Iterator[tuple[int, int]]:
        """The beginnings of secrets where the text was cut; no place is looked at twice, however often it was."""
        looked = 0
        for found in _CUT.finditer(plain):
            end = found.start()
            beyond = end - _LEAST_CUT + 1
            for begin in range(max(looked, end - _MOST_CUT), beyond):
                if plain[begin : begin + _LEAST_CUT] in self._beginnings and self._begins(plain[begin:end]):
                    yield begin, end
            looked = max(looked, beyond)

    def _begins(self, text: str) -> bool:
        """Whether a form begins with a text."""
        at = bisect_left(self._forms, text)
        return at < len(self._forms) and self._forms[at].startswith(text)


def _pieces(form: str, size: int) -> set[str]:
    """The last pieces of a form, one for each place at which a look may fall."""
    last = len(form) - size
    return {form[start : start + size] for start in range(last - _STRIDE + 1, last + 1)}


def _take_one(counts: dict[str, int], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def _masked(text: str, spans: Iterable[tuple[int, int]], mask: str) -> str:
    """Spans that overlap are one."""
    parts: list[str] = []
    last = 0
    for begin, end in sorted(spans):
        if begin >= last:
            parts += (text[last:begin], mask)
        last = max(last, end)
    return "".join((*parts, text[last:]))

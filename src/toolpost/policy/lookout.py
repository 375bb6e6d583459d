"""A lookout for known secrets: it finds them in texts, however they are written, and grows without looking back."""

from __future__ import annotations

import re
import time
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING

from toolpost.contracts.passing import PassingSecret
from toolpost.policy.disguises import (
    CUT,
    GZIP,
    SHORTEST,
    close_forms_of,
    forms_of,
    is_escaped,
    layers,
    packed_in,
    plainly,
    seen,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_SHORTEST_SECRET = 4  # shorter values would blot out ordinary text
_SHORTEST_LINE = 12
_NUMBER = re.compile(r"[-+.\deE]+")
# Of a text every fourth place is looked at, and of a form its first four are known: wherever it stands, one of them is
# met. More characters are met by chance less often, but there must be that many.
_STRIDE = 4
_LONG, _SHORT = 8, SHORTEST - _STRIDE + 1
_LEAST_CUT = 12  # so much of a secret, at the end of a text that was cut, is told apart from chance
_MOST_CUT = 512
_FEW, _VERY_FEW = 48, 14  # so many forms are sooner looked for one by one, in a long text and in a short one
_LONG_TEXT = 400
_LOOK_BACK_S = 60.0
_MOST_FORGOTTEN = 50


class Lookout:
    """Knows secrets by the forms they take; learning one more costs the same however many are known.

    A `PassingSecret` is forgotten when its time is over, unless it was learned again meanwhile, or as one that lasts.
    `numbers` are those secrets that may come as one.
    """

    __slots__ = (
        "_clock",
        "_close",
        "_few",
        "_lasting",
        "_long",
        "_look_back_at",
        "_passing",
        "_pattern",
        "_shared",
        "_short",
        "knows_nothing",
        "numbers",
    )

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.knows_nothing = True
        self.numbers: set[str] = set()
        self._few: list[str] = []
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
        for form in forms:
            if len(self._few) <= _FEW and form not in self._few:
                self._few.append(form)
            size, known = self._known_by(form)
            if form in known.get(form[:size], ()):
                self._shared[form] = self._shared.get(form, 0) + 1
                continue
            for start in range(_STRIDE):
                piece = form[start : start + size]
                met = known.get(piece, ())
                if form not in met:
                    known[piece] = (*met, form)

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
        if over:
            self._few = self._first_few()

    def _first_few(self) -> list[str]:
        """All forms if they are few, else enough to say that they are not."""
        found: dict[str, None] = {}
        for forms in chain(self._long.values(), self._short.values()):
            found.update(dict.fromkeys(forms))
            if len(found) > _FEW:
                break
        return list(found)

    def _forget(self, secret: str) -> None:
        """Watch for one less; those that are too short for disguises are so few that they are left."""
        forms = forms_of(secret)
        if forms:
            self.numbers.discard(secret)
        for form in forms:
            if others := self._shared.pop(form, 0):
                if others > 1:
                    self._shared[form] = others - 1
                continue
            size, known = self._known_by(form)
            for piece in {form[start : start + size] for start in range(_STRIDE)}:
                left = tuple(other for other in known[piece] if other != form)
                if left:
                    known[piece] = left
                else:
                    del known[piece]

    def without(self, text: str, mask: str) -> str:
        """The text with a mask in place of every secret."""
        if self.knows_nothing:
            return text
        if len(text) >= SHORTEST and self._may_be_in(text) and (spans := list(self._spans(text))):
            text = _masked(text, spans, mask)
        if not self._close:
            return text
        if self._pattern is None:
            self._pattern = re.compile("|".join(map(re.escape, sorted(self._close, key=len, reverse=True))))
        return self._pattern.sub(mask, text)

    def _spans(self, text: str, *, unpack: bool = True) -> Iterator[tuple[int, int]]:
        is_cut = CUT.search(text)
        for number, layer in enumerate(layers(text)):
            plain = plainly(layer)
            if self._may_hold(plain) or (is_cut and any(self._cut(plain))):
                yield from self._within(text, number)
        if unpack and GZIP in text:
            for begin, end, inner in packed_in(text):
                if inner is None or any(self._spans(f"{inner}…", unpack=False)):
                    yield begin, end

    def _may_be_in(self, text: str) -> bool:
        """Whether it is worth a second look; for most texts it is not."""
        if self._may_hold(plainly(text)) or GZIP in text or CUT.search(text):
            return True
        return is_escaped(text) and any(self._may_hold(plainly(layer)) for layer in islice(layers(text), 1, None))

    def _may_hold(self, plain: str) -> bool:
        if len(self._few) <= (_FEW if len(plain) > _LONG_TEXT else _VERY_FEW):
            return any([form in plain for form in self._few])  # noqa: C419 - of few, a list is made sooner
        places = range(0, len(plain) - _SHORT + 1, _STRIDE)
        return not self._long.keys().isdisjoint([plain[at : at + _LONG] for at in places]) or (
            bool(self._short) and not self._short.keys().isdisjoint([plain[at : at + _SHORT] for at in places])
        )

    def _within(self, text: str, layer: int) -> Iterator[tuple[int, int]]:
        """Where secrets stand in a text, as one of its layers shows it."""
        plain, begins, ends = seen(text, layer)
        for begin, end in (*self._whole(plain), *self._cut(plain)):
            yield begins[begin], ends[end - 1]

    def _whole(self, plain: str) -> Iterator[tuple[int, int]]:
        for size, known in ((_LONG, self._long), (_SHORT, self._short)):
            for at in range(0, len(plain) - size + 1, _STRIDE):
                for form in known.get(plain[at : at + size], ()):
                    for begin in range(max(0, at - _STRIDE + 1), at + 1):
                        if plain.startswith(form, begin):
                            yield begin, begin + len(form)

    def _cut(self, plain: str) -> Iterator[tuple[int, int]]:
        """The beginnings of secrets where the text was cut; no place is looked at twice, however often it was."""
        looked = 0
        for found in CUT.finditer(plain):
            beyond = found.start() - _LEAST_CUT + 1
            for begin in range(max(looked, beyond - _MOST_CUT), beyond):
                for form in self._long.get(plain[begin : begin + _LONG], ()):
                    end = begin + _agreeing(form, plain, begin)
                    if end - begin >= _LEAST_CUT and CUT.match(plain, end):
                        yield begin, end
            looked = max(looked, beyond)


def _agreeing(form: str, plain: str, begin: int) -> int:
    """How much of a form stands in a text at a place; dots at its end may be those of the cut."""
    pairs = zip(form, plain[begin : begin + _MOST_CUT], strict=False)
    agreeing = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return len(form[:agreeing].rstrip(".…"))


def _masked(text: str, spans: Iterable[tuple[int, int]], mask: str) -> str:
    """Spans that overlap are one."""
    parts: list[str] = []
    last = 0
    for begin, end in sorted(spans):
        if begin >= last:
            parts += (text[last:begin], mask)
        last = max(last, end)
    return "".join((*parts, text[last:]))

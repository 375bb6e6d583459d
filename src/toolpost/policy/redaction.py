"""Find secrets in texts and values, and mask them."""

from __future__ import annotations

import base64
import json
import logging
import re
import string
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import accumulate, islice
from typing import Any, Protocol, cast, runtime_checkable
from urllib.parse import quote, quote_plus, unquote_plus

from toolpost.contracts.events import JsonText
from toolpost.contracts.expiring_secret import ExpiringSecret
from toolpost.policy.secret_shapes import MASK, mask_secret_shapes, may_have_secret
from toolpost.schema.hidden_text import strip_invisible
from toolpost.schema.secrets import SecretPaths, is_secret_name, is_secret_path

SHORTEST = 8  # a shorter form is matched only as written: normalized it would be everywhere
_JSON_LAYERS = 3  # of JSON in JSON
_CHUNK = 4096
_DELETED = bytes({*range(33), 127})
_BASE64_FOLDING = bytes.maketrans(string.ascii_uppercase.encode() + b"-_", string.ascii_lowercase.encode() + b"+/")
_SHORTEST_SECRET = 4  # shorter values would blot out ordinary text
_SHORTEST_LINE = 12
_ROT13 = str.maketrans(
    string.ascii_letters,
    "".join(f"{letters[13:]}{letters[:13]}" for letters in (string.ascii_lowercase, string.ascii_uppercase)),
)
_NUMBER = re.compile(r"[-+.\deE]+")
_CUT = re.compile(r"…|\.\.\.")
# The index is probed at every fourth position of a text and holds the last four pieces of each form, so that a form is
# hit wherever it stands. The end of a form is indexed, because tokens of one issuer begin alike. Longer pieces have
# fewer false hits, but a form must be long enough for them.
_STRIDE = 4
_LONG, _SHORT = 16, SHORTEST - _STRIDE + 1
_LEAST_CUT = 12  # shorter beginnings of a secret before an ellipsis may be coincidence
_MOST_CUT = 512
_FEW, _VERY_FEW = 48, 14  # up to so many forms, one `in` per form is faster, in a long text and in a short one
_LONG_TEXT = 400
_PURGE_INTERVAL_S = 60.0
_MOST_PURGED = 50


class SecretMatcher:
    """Set of secrets that masks every encoded form of them; adding one costs the same however many there are.

    A `ExpiringSecret` is removed when it has expired, unless it was added again or as a permanent one. `numbers` are
    the secrets that may appear as a JSON number; `longest` is the length of the longest form.
    """

    __slots__ = (
        "_beginnings",
        "_clock",
        "_exact",
        "_expiring",
        "_forms",
        "_long",
        "_next_purge_at",
        "_pattern",
        "_permanent",
        "_shared",
        "_short",
        "is_empty",
        "longest",
        "numbers",
    )

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
            self._add_form(form)
            for piece in _pieces(form, size):
                index[piece] = (*index.get(piece, ()), form)

    def _add_form(self, form: str) -> None:
        insort(self._forms, form)
        beginning = form[:_LEAST_CUT]
        self._beginnings[beginning] = self._beginnings.get(beginning, 0) + 1
        self.longest = max(self.longest, len(form))

    def _index_of(self, form: str) -> tuple[int, dict[str, tuple[str, ...]]]:
        """Return the piece size and the index that a form belongs to."""
        return (_LONG, self._long) if len(form) >= _LONG + _STRIDE - 1 else (_SHORT, self._short)

    def _purge_expired(self, now: float) -> None:
        """Remove expired secrets: at most once a minute and few at a time, because a call waits meanwhile."""
        if now < self._next_purge_at:
            return
        expired = list(islice((secret for secret, until in self._expiring.items() if until <= now), _MOST_PURGED))
        self._next_purge_at = now + (_PURGE_INTERVAL_S if len(expired) < _MOST_PURGED else 0.0)
        for secret in expired:
            del self._expiring[secret]
            self._forget(secret)

    def _forget(self, secret: str) -> None:
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
        """Return False when the text certainly holds no form; most texts hold none."""
        if len(self._forms) <= (_FEW if len(plain) > _LONG_TEXT else _VERY_FEW):
            return any([form in plain for form in self._forms])  # noqa: C419 - of few, a list is made sooner
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
        """Yield beginnings of forms before an ellipsis; no position is examined twice, however many there are."""
        looked = 0
        for match in _CUT.finditer(plain):
            end = match.start()
            beyond = end - _LEAST_CUT + 1
            for begin in range(max(looked, end - _MOST_CUT), beyond):
                if plain[begin : begin + _LEAST_CUT] in self._beginnings and self._is_form_prefix(plain[begin:end]):
                    yield begin, end
            looked = max(looked, beyond)

    def _is_form_prefix(self, text: str) -> bool:
        """Return whether any form begins with a text."""
        at = bisect_left(self._forms, text)
        return at < len(self._forms) and self._forms[at].startswith(text)


def _pieces(form: str, size: int) -> set[str]:
    """Return the last pieces of a form, one for each alignment of the probes."""
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


def normalize(text: str) -> str:
    """Return the text without case, blanks and invisible characters, and with one alphabet of base64."""
    if text.isascii():
        return text.encode().translate(_BASE64_FOLDING, _DELETED).decode()
    return "".join(strip_invisible(text).casefold().split()).replace("-", "+").replace("_", "/")


def forms_of(secret: str) -> set[str]:
    """Return the encoded forms of a secret in normalized text; none for a short secret."""
    plain = normalize(secret)
    if len(plain) < SHORTEST:
        return set()
    import html  # noqa: PLC0415 - with all its entities, where there are secrets

    raw = secret.encode("utf-8", "surrogatepass")
    forms = {secret, plain[::-1], raw.hex(), html.escape(secret), *base64_cores(raw)}
    forms.update(_json_forms(secret))
    percent = {quote(raw, safe=""), quote(raw), quote_plus(raw), "".join(f"%{byte:02x}" for byte in raw)}
    forms.update(percent, (form.replace("%", "%25") for form in percent))
    forms.update(_character_forms(secret), _byte_forms(raw))
    return {form for form in map(normalize, forms) if len(form) >= SHORTEST}


def _character_forms(secret: str) -> Iterator[str]:
    """Yield a secret with every character written by its number, as in HTML."""
    numbers = [ord(char) for char in secret]
    yield "".join([f"&#{number};" for number in numbers])
    yield "".join([f"&#x{number:x};" for number in numbers])
    yield ",".join(map(str, numbers))


def _byte_forms(raw: bytes) -> Iterator[str]:
    """Yield a secret with every byte written by its number, and in encodings of bytes beside base64 and hex."""
    for before in ("\\x", "\\\\x", "="):
        yield f"{before}{raw.hex(',').replace(',', before)}"
    yield from (raw.hex(":"), raw.hex("-"), f"0x{raw.hex(',').replace(',', ',0x')}")
    yield "".join([f"\\{byte:03o}" for byte in raw])
    yield base64.b32encode(raw).decode().rstrip("=")
    yield from base64_cores(base64.b64encode(raw).rstrip(b"="))
    text = raw.decode("utf-8", "surrogatepass")
    wide = text.encode("utf-16-le", "surrogatepass")
    yield wide.hex()
    yield from base64_cores(wide)
    yield text.translate(_ROT13)


def _json_forms(secret: str) -> Iterator[str]:
    forms = {secret}
    for _ in range(_JSON_LAYERS):
        forms = {json.dumps(text, ensure_ascii=to_ascii)[1:-1] for text in forms for to_ascii in (True, False)}
        yield from forms
    yield json.dumps(secret)[1:-1].replace("/", "\\/")
    units = secret.encode("utf-16-be", "surrogatepass").hex()
    yield "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def exact_forms_of(secret: str) -> set[str]:
    """Return the forms of a short secret in text as written: plain, in JSON, in a URL and in base64."""
    raw = secret.encode("utf-8", "surrogatepass")
    inside = {core for core in base64_cores(raw) if len(core) >= SHORTEST}
    return {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        quote(raw, safe=""),
        quote(raw),
        quote_plus(raw),
        base64.b64encode(raw).decode().rstrip("="),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
        *inside,
        *(core.replace("+", "-").replace("/", "_") for core in inside),
    }


def base64_cores(raw: bytes) -> Iterator[str]:
    """Yield the base64 characters of a secret inside a longer text, such as `user:secret`, at each alignment."""
    for before in range(3):
        shifted = b"\0" * before + raw
        first, last = -(-before * 8 // 6), len(shifted) * 8 // 6
        yield base64.b64encode(shifted)[first:last].decode()


def original_index(text: str) -> Callable[[int], int]:
    """Return a function from an index of `normalize(text)` to the index in the text, computed by chunk on demand."""
    ends = list(accumulate(len(normalize(text[at : at + _CHUNK])) for at in range(0, len(text), _CHUNK)))

    @cache
    def places(chunk: int) -> list[int]:
        begin = chunk * _CHUNK
        part = text[begin : begin + _CHUNK]
        if part.isascii():
            return [at for at, byte in enumerate(part.encode(), begin) if byte not in _DELETED]
        return [at for at, char in enumerate(part, begin) for _ in normalize(char)]

    def place(index: int) -> int:
        chunk = bisect_right(ends, index)
        return places(chunk)[index - (ends[chunk - 1] if chunk else 0)]

    return place


LONGEST_MESSAGE = 8000  # a server decides how long its error message is
_DEEPEST = 100  # deeper values are masked unseen, because recursion would overflow the stack
_LARGEST_NUMBER = 10**100
_LONGEST_LOGIN = 256  # of a name and a password in a URL
_ARGUMENT_KEYS = ("params", "input", "arguments")
_RESULT_KEYS = ("summary", "result")
_SCALARS = frozenset({str, int, float, bool})
_SECRET_TYPES = frozenset({str, int, float})
_UNMARKED = frozenset({int, float, bool, type(None)})  # no URL stands in them
_NOTHING: SecretPaths = frozenset()
_MARK = "://"
_MOST_NAMES = 4096
_harmless_names: set[str] = set()
# Possessive quantifiers, so that matching a hostile text takes linear time.
_LOGIN = re.compile(r"(://[^\s/?#@:]*+:)[^\s/?#@]++@")
_FIELD = re.compile(r"([?&;#])([^\s?&;=#]{1,100}+)=([^\s&;#\"'<>\\]++)")
# Names of query parameters; as names of JSON members they are harmless.
_KEYS = frozenset({"key", "sig", "signature", "auth", "x-amz-signature", "x-amz-security-token", "x-goog-signature"})
# A filter of a logger does not see the records of its child loggers, so that each needs its own.
LOGGERS = (
    "toolpost.agents",
    "toolpost.auth",
    "toolpost.events",
    "toolpost.gateway",
    "toolpost.runtime",
    "toolpost.sources.mcp",
    "toolpost.sources.websocket",
    "toolpost.stores",
    "toolpost.toolbox",
    "toolpost.tools",
)
LOG_FIELDS = "toolpost_fields"  # of a log record: what a structured line has beside its message
_CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
_formatter = logging.Formatter()


class Redactor:
    """The secrets of one Toolbox, and methods that mask them in text, JSON values and events."""

    def __init__(self, secrets: Iterable[str] = (), *, beside: tuple[SecretMatcher, ...] = ()) -> None:
        self._own = SecretMatcher()
        self._matchers = (*beside, self._own)
        self._is_empty = not beside  # asked for every event
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Add secrets, with all their encoded forms."""
        for secret in secrets:
            self._own.learn(secret)
            if "\n" in secret:  # it may be printed line by line
                self._own.learn_lines(secret)
        self._is_empty = self._is_empty and self._own.is_empty

    def join(self, other: Redactor) -> None:
        """Also mask the secrets of another redactor, those that it learns later included."""
        more = [matcher for matcher in other._matchers if matcher not in self._matchers]
        self._matchers = (*more, *self._matchers)
        self._is_empty = self._is_empty and not more

    def with_secrets(self, secrets: Iterable[str]) -> Redactor:
        """Return a redactor with more secrets, such as those in the arguments of one call."""
        other = Redactor(secrets, beside=self._matchers)
        return self if other._own.is_empty else other

    def text(self, text: str) -> str:
        """Return a text with known secrets masked."""
        if self._is_empty:
            return text
        for matcher in self._matchers:
            text = matcher.mask(text, MASK)
        return text

    def redact(self, text: str) -> str:
        """Return a text with known secrets, those in URLs, and what has the shape of a secret masked."""
        return mask_secret_shapes(mask_url_secrets(self.text(text)))

    def excerpt(self, text: str, limit: int) -> str:
        """Return the redacted beginning of a text, with no part of a secret where the text is cut.

        Only the beginning is searched, plus the length of the longest secret.
        """
        if len(text) <= limit:
            return self.redact(text)
        beyond = 2 * max(matcher.longest for matcher in self._matchers) + _LONGEST_LOGIN
        window = text[: limit + beyond]
        redacted = self.redact(window)
        if len(window) < len(text):
            redacted = redacted[:-beyond]  # a secret that begins here may end behind the window
        return f"{redacted[:limit]}…" if len(redacted) >= limit or len(window) < len(text) else redacted

    def message(self, text: str) -> str:
        """Return a redacted error message, cut to `LONGEST_MESSAGE`."""
        return self.excerpt(text, LONGEST_MESSAGE)

    def texts(self, value: Any) -> Any:
        """Return a JSON value with known secrets masked; names of members do not matter."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.texts(part) for key, part in cast("Mapping[object, Any]", value).items()}
        if isinstance(value, list | tuple):
            return [self.texts(part) for part in cast("Sequence[Any]", value)]
        return value

    def value(self, value: Any, *, secret: SecretPaths = _NOTHING, path: tuple[str, ...] = ()) -> Any:
        """Return a JSON value with known secrets, secret-like names and marked paths masked; non-JSON becomes text."""
        if type(value) is str:
            return self.redact(value)
        if value is None or type(value) is bool:
            return value
        if type(value) is int or type(value) is float:
            return self._number(value)
        return self._composite(value, secret, path)

    def _composite(self, value: Any, secret: SecretPaths, path: tuple[str, ...]) -> Any:
        match value:
            case JsonText():
                return self.value(json.loads(value), secret=secret, path=path)
            case dict() | Mapping():
                members = cast("Mapping[object, Any]", value)
                return {
                    self.text(str(key)): self._member(str(key), part, secret, path) for key, part in members.items()
                }
            case list() | tuple():
                return [self._member("*", part, secret, path) for part in cast("Sequence[Any]", value)]
            case int() | float():
                return self._number(value)
            case _:
                return self.redact(str(value))

    def _number(self, value: float) -> Any:
        """Mask a number that is a secret, such as a passcode."""
        if self._is_empty or not -_LARGEST_NUMBER < value < _LARGEST_NUMBER:
            return value
        return MASK if any(str(value) in matcher.numbers for matcher in self._matchers) else value

    def _member(self, key: str, item: Any, secret: SecretPaths, path: tuple[str, ...]) -> Any:
        if item is None:
            return None
        if not secret and type(item) in _SCALARS:
            return MASK if is_secret_name(key) else self.value(item)
        below = (*path, key)
        if is_secret_name(key) or (secret and is_secret_path(below, secret)) or len(below) > _DEEPEST:
            return MASK
        return self.value(item, secret=secret, path=below)

    def for_tool(
        self, *, arguments: SecretPaths, results: SecretPaths
    ) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        """Return the redaction of one tool's events, by the paths that its schemas mark as secret."""
        if not arguments and not results:
            return self.plain
        marked = {**dict.fromkeys(_ARGUMENT_KEYS, arguments), **dict.fromkeys(_RESULT_KEYS, results)}

        def redact(facts: Mapping[str, Any]) -> dict[str, Any]:
            return {key: self._fact(fact, marked.get(key, _NOTHING)) for key, fact in facts.items()}

        return redact

    def plain(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Redact the facts of an event of no known tool; the keys of facts are ours and name no secrets."""
        if self._is_empty and facts.__class__ is dict and _are_harmless(facts.values()):
            return cast("dict[str, Any]", facts)
        return {key: self._fact(fact, _NOTHING) for key, fact in facts.items()}

    def _fact(self, fact: Any, secret: SecretPaths) -> Any:
        if not secret and self._is_empty and _are_harmless((fact,)):
            return fact
        if () in secret:  # the whole value is a secret
            return MASK
        return self.value(fact, secret=secret)


@runtime_checkable
class RedactingTool(Protocol):
    """A tool with secrets of its own, such as the credential of a server behind it."""

    @property
    def redactor(self) -> Redactor:
        """The redactor that knows the tool's secrets."""
        ...


def secret_values(arguments: Any, marked: SecretPaths, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the texts and numbers in arguments under secret-like names or at paths that the schema marks."""
    for key, part in _parts(arguments) if len(path) < _DEEPEST else ():
        below = (*path, key)
        if is_secret_name(key) or is_secret_path(below, marked):
            yield from _texts(part)
        else:
            yield from secret_values(part, marked, below)


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    if type(value) in _SECRET_TYPES:
        yield str(value)
    for _, part in _parts(value) if depth < _DEEPEST else ():
        yield from _texts(part, depth + 1)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the members of an object by name, the items of a list under `*`."""
    if isinstance(value, Mapping):
        for key, part in cast("Mapping[object, Any]", value).items():
            yield str(key), part
    elif isinstance(value, (list, tuple)):
        for part in cast("Sequence[Any]", value):
            yield "*", part


def _are_harmless(facts: Iterable[Any]) -> bool:
    """Return whether facts are plain values under harmless names without a URL or the shape of a secret; most are."""
    texts: list[str] = []
    for fact in facts:
        if fact.__class__ is str:
            texts.append(fact)
        elif fact.__class__ is dict:
            if not (fact.keys() <= _harmless_names or _have_harmless_names(fact)):
                return False
            for value in fact.values():
                if value.__class__ is str:
                    texts.append(value)
                elif value.__class__ not in _UNMARKED:
                    return False
        elif fact.__class__ not in _UNMARKED:
            return False
    together = "\n".join(texts)  # one search is cheaper than one for each
    return _MARK not in together and not may_have_secret(together)


def _have_harmless_names(members: Iterable[Any]) -> bool:
    """Return whether no name is like that of a secret, and remember those names: the next call has mostly the same."""
    names = list(members)
    if any(name.__class__ is not str or is_secret_name(name) for name in names):
        return False
    if len(_harmless_names) > _MOST_NAMES:
        _harmless_names.clear()
    _harmless_names.update(names)
    return True


def mask_url_secrets(text: str) -> str:
    """Mask the password before a URL's host, and keys and signatures in its query."""
    if _MARK not in text:
        return text
    text = _LOGIN.sub(rf"\g<1>{MASK}@", text)
    return _FIELD.sub(_mask_field, text) if "=" in text else text


def _mask_field(match: re.Match[str]) -> str:
    name = unquote_plus(match[2])
    secret = name.lower() in _KEYS or is_secret_name(name)
    return f"{match[1]}{match[2]}={MASK}" if secret else match[0]


class LogRedaction(logging.Filter):
    """Logging filter that redacts message, fields and traceback of each record and keeps the message on one line."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = one_line(self._redactor.message(record.getMessage())), ()
        if fields := getattr(record, LOG_FIELDS, None):
            setattr(record, LOG_FIELDS, self._redactor.plain(fields))
        if record.exc_info:
            # Handlers print `exc_text` where it is set; the exception itself would be printed unredacted.
            record.exc_text = self._redactor.redact(_formatter.formatException(record.exc_info))
            record.exc_info = None
        elif record.exc_text:
            record.exc_text = self._redactor.redact(record.exc_text)
        return True


@contextmanager
def redacted_logs(redactor: Redactor) -> Generator[None]:
    """Redact the package's log records while the context is open; several redactors can be active at once."""
    redaction = LogRedaction(redactor)
    for name in LOGGERS:
        logging.getLogger(name).addFilter(redaction)
    try:
        yield
    finally:
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(redaction)


def one_line(text: str) -> str:
    """Escape line breaks and other control characters, so that a text cannot pass for two log records."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)

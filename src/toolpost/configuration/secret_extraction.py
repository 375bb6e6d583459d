"""Find secrets that are written out in a configuration and replace them with references such as `${GITHUB_TOKEN}`.

Not a general scanner: it knows names that hold secrets and the formats of well-known keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from msgspec import Struct

from toolpost.configuration.literal_secrets import MIN_SECRET
from toolpost.contracts.records import represent
from toolpost.schema.secrets import is_secret_variable

# `$${NAME}` is the text `${NAME}` itself.
REFERENCE = re.compile(r"(?<!\$)\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}")

_PLAIN_WORDS = frozenset({"true", "false", "none", "null"})
_SCHEME = re.compile(r"(?P<scheme>(?:bearer|basic|token|apikey)\s+)?(?P<secret>.*)", re.IGNORECASE | re.DOTALL)
_NAMED_WORD = re.compile(r"(?P<before>-{0,2}(?P<name>[A-Za-z][\w.-]*)(?:=|:\s*))(?P<value>.+)", re.DOTALL)
_OPTION = re.compile(r"-{1,2}(?P<name>[A-Za-z][\w-]*)")
_QUERY = re.compile(r"(?P<before>[?&;](?P<name>[\w.-]+)=)(?P<secret>[^&#;\s]+)")
_PAIR = re.compile(
    r"""(?P<before>["']?(?P<name>[A-Za-z][\w.-]*)["']?\s*[=:]\s*["']?(?:(?:bearer|basic|token|apikey)\s+)?)"""
    r"""(?P<secret>[^\s"',;&{}\[\]]+)""",
    re.IGNORECASE,
)
_PASSWORD = re.compile(r"(?P<before>\b[a-z][a-z0-9+.-]*://[^\s/@:]*:)(?P<secret>[^\s/@]+)(?=@)", re.IGNORECASE)
_KNOWN_KEY = re.compile(
    r"""
    (?<![A-Za-z0-9])(?P<secret>
        -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----.*
      | eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*                     # a JSON web token
      | (?:AKIA|ASIA)[0-9A-Z]{16}
      | AIza[\w-]{30,}
      | (?:sk|rk|pk)[-_](?:live|test|proj|ant|or|svcacct)?[-_]?[\w-]{12,}
      | gh[pousr]_\w{16,} | github_pat_\w{16,} | glpat-[\w-]{12,}
      | xox[abeprs]-[\w-]{10,} | xapp-[\w-]{10,}
      | (?:hf|npm|ntn|secret|shpat|dop_v1|lin_api|figd|r8|pat|apify_api)_[A-Za-z0-9]{16,}
      | (?:pypi|tvly|fc|nvapi|gsk|pplx)[-_][\w-]{16,}
      | ya29\.[\w-]{16,} | SG\.[\w-]{16,}\.[\w-]{16,}
    )
    """,
    re.VERBOSE | re.DOTALL,
)


class Variable(Struct, frozen=True, kw_only=True):
    """A variable that a configuration now refers to, and the place of its value.

    `value` is the secret that was written out, if any; it is never shown.
    """

    name: str
    stands_for: str
    value: str | None = None

    def __repr__(self) -> str:
        return represent(self, without=("value",))


def references(text: str) -> list[str]:
    """Return the variables that a text refers to."""
    return [match["name"] for match in REFERENCE.finditer(text)]


def variable_name(*parts: str) -> str:
    """Build the name of a variable: `my-server` and `apiKey` become `MY_SERVER_API_KEY`."""
    apart = (re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", part) for part in parts)
    words = [re.sub(r"[^A-Z0-9]+", "_", part.upper()).strip("_") for part in apart]
    if len(words) > 1 and words[1].startswith(f"{words[0]}_"):
        words = words[1:]
    name = "_".join(word for word in words if word)
    return f"V_{name}" if not name or name[0].isdigit() else name


class SecretExtractor:
    """Replace the secrets of one or more sources with references to variables, collected in `variables`.

    The same secret gets the same variable. A variable of the environment with another value is never reused.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.variables: list[Variable] = []
        self._environ = environ

    def env(self, source: str, name: str, value: str, *, own_name: bool = False) -> str:
        """Replace secrets in the value of an environment variable; `own_name` prefers the variable's own name."""
        return self._replace_named(value, name, _Place(source, name, f"env {name} of {source!r}", own_name=own_name))

    def header(self, source: str, name: str, value: str) -> str:
        """Replace secrets in the value of a header; its scheme, such as `Bearer`, stays."""
        return self._replace_named(value, name, _Place(source, name, f"header {name} of {source!r}"))

    def url(self, source: str, url: str) -> str:
        """Replace passwords and keys in a URL."""
        return self._text(url, _Place(source, "key", f"the URL of {source!r}"))

    def login(self, source: str, url: str) -> tuple[str, dict[str, str]]:
        """Split a URL into the URL without userinfo, and username and password; the password is replaced."""
        scheme, separator, rest = url.partition("://")
        authority, slash, path = rest.partition("/")
        who, at, host = authority.rpartition("@")
        if not (separator and at):
            return url, {}
        username, _, encoded = who.partition(":")
        password = unquote(encoded)
        if password and not references(password):  # of any length: this place can only contain a password
            password = self._reference(password, _Place(source, "password", f"the password of {source!r}"))
        return f"{scheme}://{host}{slash}{path}", {"username": unquote(username), "password": password}

    def words(self, source: str, words: Sequence[str]) -> list[str]:
        """Replace secrets in the words of a command line: after `--token`, in `API_KEY=...`, and well-known keys."""
        replaced: list[str] = []
        option: str | None = None
        for word in words:
            named = _NAMED_WORD.fullmatch(word)
            place = _Place(source, option or "key", f"an argument of {source!r}")
            if option is not None and not word.startswith("-"):
                replaced.append(self._replace_named(word, option, place))
            elif named is not None and "://" not in named["before"] + named["value"][:2]:
                of = _Place(source, named["name"], f"the argument {named['name']} of {source!r}")
                replaced.append(named["before"] + self._replace_named(named["value"], named["name"], of))
            else:
                replaced.append(self._text(word, place))
            match = _OPTION.fullmatch(word)
            option = match["name"] if match and is_secret_variable(match["name"]) else None
        return replaced

    def _replace_named(self, value: str, name: str, place: _Place) -> str:
        """Replace a whole value if its name is that of a secret, else the secrets in it."""
        if references(value) or not is_secret_variable(name) or _is_harmless(value):
            return self._text(value, place)
        match = _SCHEME.fullmatch(value)
        scheme, secret = (match["scheme"] or "", match["secret"]) if match else ("", value)
        return scheme + self._reference(secret, place) if secret else value

    def _text(self, text: str, place: _Place) -> str:
        """Replace passwords and keys anywhere in a text."""
        text = _PAIR.sub(self._each_pair(place), text)
        if "://" in text:
            text = _QUERY.sub(self._each_pair(place, plain_words=True), text)
            text = _PASSWORD.sub(self._each(place.within("password")), text)
        return _KNOWN_KEY.sub(self._each(place), text)

    def _each_pair(self, place: _Place, *, plain_words: bool = False) -> Callable[[re.Match[str]], str]:
        """Replace the values of secret names; without `plain_words`, values that are not secrets stay."""

        def replace(match: re.Match[str]) -> str:
            if not is_secret_variable(match["name"]) or (not plain_words and _is_harmless(match["secret"])):
                return match[0]
            return self._each(_Place(place.source, match["name"], f"{match['name']} in {place.label}"))(match)

        return replace

    def _each(self, place: _Place) -> Callable[[re.Match[str]], str]:
        def replace(match: re.Match[str]) -> str:
            if references(match["secret"]):
                return match[0]
            return (match.groupdict().get("before") or "") + self._reference(match["secret"], place)

        return replace

    def _reference(self, secret: str, place: _Place) -> str:
        same = next((variable for variable in self.variables if variable.value == secret), None)
        if same is not None:
            return f"${{{same.name}}}"
        name = next(name for name in place.names() if self._is_free(name, secret))
        self.variables.append(Variable(name=name, stands_for=place.label, value=secret))
        return f"${{{name}}}"

    def _is_free(self, name: str, secret: str) -> bool:
        taken = {variable.name for variable in self.variables}
        return name not in taken and self._environ.get(name, secret) == secret


class _Place(Struct, frozen=True):
    """The place of a secret; `names` yields the possible names of its variable, the best first."""

    source: str
    name: str
    label: str
    own_name: bool = False

    def within(self, part: str) -> _Place:
        name = part if self.name == "key" else f"{self.name}_{part}"
        return _Place(self.source, name, f"the {part} in {self.label}")

    def names(self) -> Iterator[str]:
        if self.own_name:
            yield variable_name(self.name)
        full = variable_name(self.source, self.name)
        yield full
        number = 2
        while True:
            yield f"{full}_{number}"
            number += 1


def _is_harmless(value: str) -> bool:
    """Return whether a value under a secret name is not a secret: a short or plain word, or the path of a file."""
    if len(value) < MIN_SECRET or value.lower() in _PLAIN_WORDS:
        return True
    if "/" not in value and "\\" not in value:
        return False
    try:
        return Path(value).expanduser().is_file()
    except (OSError, RuntimeError, ValueError):
        return False

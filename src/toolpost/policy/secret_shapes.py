"""Mask secrets in free text by their shapes: known prefixes of tokens, private keys, and assignments to secret names.

This module knows no secret. `SecretMatcher`, which knows the configured ones, finds secrets of other shapes.
"""

from __future__ import annotations

import re

from toolpost.schema.secrets import is_secret_name

MASK = "[redacted]"
_SHORTEST = 10  # no shape is shorter
_SHORTEST_RANDOM = 24  # letters alone that are longer than a word

# A text is searched only if it has one of these, as few texts do. This check takes 0.4 µs for an id, 0.8 µs for the
# texts of an event together, and 5 to 10 ns per character of a long text. The search takes 20 to 200 ns per character.
_NAMES = ("key", "token", "secret", "pass", "pwd", "credential", "cookie", "authoriz", "session", "jwt", "otp")
# The first character is a literal, which `re` finds quickly; the characters before it are examined only there.
_AT_UNDERSCORE = re.compile(
    r"_(?:(?<=gh[opsur]_)|(?<=github_pat_)|(?<=k_live_)|(?<=k_test_)|(?<=whsec_)|(?<=npm_)|(?<=hf_)|(?<=shpat_)"
    r"|(?<=dop_v1_))"
)
_AT_HYPHEN = re.compile(r"-(?:(?<=sk-)|(?<=xox[abceoprs]-)|(?<=xapp-)|(?<=glpat-)|(?<=pypi-)|(?<=-----)(?=BEGIN ))")

_TOKEN = re.compile(
    r"""(?x)
    (?<![A-Za-z0-9])(?:
      sk-(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_-]{16,}+           # OpenAI, Anthropic and others
    | [sr]k_(?:live|test)_[A-Za-z0-9]{10,}+ | whsec_[A-Za-z0-9+/=]{16,}+   # Stripe
    | gh[opsur]_[A-Za-z0-9]{20,}+ | github_pat_[A-Za-z0-9_]{20,}+ | glpat-[A-Za-z0-9_.-]{16,}+
    | xox[abceoprs]-(?=[A-Za-z-]{0,20}[0-9])[A-Za-z0-9-]{10,}+ | xapp-[0-9]-[A-Za-z0-9-]{10,}+   # Slack
    | A[KS]IA[A-Z0-9]{16}(?![A-Za-z0-9])                          # AWS
    | AIza[A-Za-z0-9_-]{35} | ya29\.[A-Za-z0-9_-]{20,}+              # Google
    | npm_[A-Za-z0-9]{36} | pypi-[A-Za-z0-9_-]{50,}+ | hf_[A-Za-z0-9]{30,}+
    | SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+ | shpat_[a-f0-9]{32} | dop_v1_[a-f0-9]{64}
    | eyJ[A-Za-z0-9_-]{8,}+\.(?:eyJ[A-Za-z0-9_-]{4,}+(?:\.[A-Za-z0-9_-]*+)?   # JWS, also one that is cut
                              |[A-Za-z0-9_-]*+(?:\.[A-Za-z0-9_-]++){3})       # JWE
    )
    | (?P<pem>-----BEGIN\ (?:[A-Z0-9]++\ )*?PRIVATE\ KEY-----)(?s:.*?)(?:(?=-----END\ )|\Z)
    """
)
_BEARER = re.compile(
    r"(?i)(?<![A-Za-z])(bearer[ \t]++|authorization\\{0,3}[\"']?[ \t]*+[:=][ \t]*+\\{0,3}[\"']?[a-z]{3,20}+[ \t]++)"
    r"([A-Za-z0-9._~+/=-]{8,}+)"
)
# `api_key=...`, `Password: ...`, `"token": "..."`: a separator and the beginning of the value behind it. The value is
# not consumed, because it may be an assignment itself: `error: api_key=...`.
_SEPARATOR = re.compile(
    r"(?::=|(?<![=!<>:])=(?!=)|:(?![:/=]))[ \t]{0,3}+"
    r"(?=(?P<quote>\\{0,3}[\"'])[^\s\"'\\]{4}|[^\s\"'\\<>,;&(){}\[\]|`$=][^\s\"'\\<>,;&(){}\[\]|`]{3})"
)
# The name is read backwards from the separator. It and the value are bounded: no text takes quadratic time.
_BACKWARDS = re.compile(r"[ \t]{0,3}+[\"']?+\\{0,3}+([\w-]{2,60}+)")
_LONGEST_NAME = 70  # with what may be between it and the separator
_LONGEST_WORD = 64
_QUOTED = re.compile(r"[^\s\"'\\]++")
_TO_QUOTE = re.compile(r"[^\"'\\\n]{1,200}+(?=\\{0,3}[\"'])")  # further words of a passphrase
_PLAIN = re.compile(r"[^\s\"'\\<>,;&(){}\[\]|`]++")
_STRONG = re.compile(r"[0-9!@#%^*+~]")
_ENV_NAME = re.compile(r"[A-Z][A-Z0-9_]*+")


def mask_secret_shapes(text: str) -> str:
    """Return a text with everything masked that has the shape of a secret."""
    if not may_have_secret(text):
        return text
    text = _TOKEN.sub(lambda match: f"{match['pem'] or ''}{MASK}", text)
    text = _BEARER.sub(_mask_bearer, text)
    return _mask_assignments(text) if "=" in text or ":" in text else text


def may_have_secret(text: str) -> bool:
    """Return False if a text certainly has no secret by its shape, as most texts."""
    if len(text) < _SHORTEST:
        return False
    if "=" in text or ":" in text:
        lower = text.lower()
        if any(name in lower for name in _NAMES):
            return True
    if "eyJ" in text or "IA" in text or "AIza" in text or "earer " in text or "EARER " in text:
        return True
    if "." in text and ("ya29." in text or "SG." in text):
        return True
    return _AT_UNDERSCORE.search(text) is not None or _AT_HYPHEN.search(text) is not None


def _mask_bearer(match: re.Match[str]) -> str:
    is_header = match[1][0] in "aA"
    is_random = _STRONG.search(match[2]) is not None or len(match[2]) >= _SHORTEST_RANDOM
    return f"{match[1]}{MASK}" if is_header or is_random else match[0]


def _mask_assignments(text: str) -> str:
    parts: list[str] = []
    last = 0
    for match in _SEPARATOR.finditer(text):
        at = match.start()
        if at < last:  # within a value that is masked
            continue
        name = _BACKWARDS.match(text[max(0, at - _LONGEST_NAME) : at][::-1])
        if name is None or not is_secret_name(name[1][::-1]):
            continue
        quote = match["quote"]
        begin, pattern = match.end() + len(quote or ""), _PLAIN if quote is None else _QUOTED
        value = pattern.match(text, begin, begin + _LONGEST_WORD)
        if value is not None and (quote is not None or _is_secret(text, match, at - name.end(), value)):
            parts += (text[last:begin], MASK)
            rest = pattern.match(text, value.end())
            last = value.end() if rest is None else rest.end()
            if quote is not None and (words := _TO_QUOTE.match(text, last)) is not None:
                last = words.end()
    return "".join((*parts, text[last:]))


def _is_secret(text: str, separator: re.Match[str], name_at: int, value: re.Match[str]) -> bool:
    """Return whether a value without quotes is a secret, and neither a word nor a piece of code."""
    word: str = value[0]
    if _STRONG.search(word) is not None or (len(word) >= _SHORTEST_RANDOM and word.isalpha()):
        return True
    if separator[0] != "=":
        return False
    # `DB_PASSWORD=letmein` of an environment, and `Password=letmein;` of a connection string
    beside = text[max(0, name_at - 1) : name_at] + text[value.end() : value.end() + 1]
    return ";" in beside or _ENV_NAME.fullmatch(text, name_at, separator.start()) is not None

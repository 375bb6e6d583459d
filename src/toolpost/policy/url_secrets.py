"""Secrets that stand in a URL: a password before its host, and keys and signatures in its query."""

from __future__ import annotations

import re
from urllib.parse import unquote_plus

from toolpost.schema.secrets import is_secret_name

_MARK = "://"
# Possessive, so that a hostile text costs no more than its length.
_LOGIN = re.compile(r"(://[^\s/?#@:]*+:)[^\s/?#@]++@")
_FIELD = re.compile(r"([?&;#])([^\s?&;=#]{1,100}+)=([^\s&;#\"'<>\\]++)")
# Elsewhere these names are harmless.
_KEYS = frozenset({"key", "sig", "signature", "auth", "x-amz-signature", "x-amz-security-token", "x-goog-signature"})


def without_url_secrets(text: str, mask: str) -> str:
    """The text with a mask in place of every secret that the form of a URL gives away."""
    if _MARK not in text:
        return text
    text = _LOGIN.sub(rf"\g<1>{mask}@", text)
    return _FIELD.sub(lambda found: _told(found, mask), text) if "=" in text else text


def may_hold_url(value: object) -> bool:
    """Whether it is a text that such a secret could stand in."""
    return isinstance(value, str) and _MARK in value


def _told(found: re.Match[str], mask: str) -> str:
    name = unquote_plus(found[2])
    secret = name.lower() in _KEYS or is_secret_name(name)
    return f"{found[1]}{found[2]}={mask}" if secret else found[0]

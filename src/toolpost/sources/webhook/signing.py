"""The signature of a webhook's body: an HMAC of the bytes that are sent, so that the other side knows who sent them."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolpost.contracts.options import WebhookSignature
    from toolpost.web.encoding import Pair


_STAMP = "{timestamp}"


def signature_headers(signature: WebhookSignature, body: bytes, *, now: float) -> tuple[Pair, ...]:
    """The header of the signature; with a timestamp, that is signed too, so that nobody can send the body again.

    The timestamp stands in a header of its own, or in the prefix where that says `{timestamp}`, as Stripe has it.
    """
    stamp = str(int(now))
    dated = signature.timestamp_header is not None or _STAMP in signature.prefix
    signed = f"{stamp}.".encode() + body if dated else body
    digest = hmac.new(signature.secret.encode(), signed, getattr(hashlib, signature.algorithm)).digest()
    told = digest.hex() if signature.encoding == "hex" else base64.b64encode(digest).decode()
    headers: list[Pair] = [(signature.header, signature.prefix.replace(_STAMP, stamp) + told)]
    if signature.timestamp_header is not None:
        headers.append((signature.timestamp_header, stamp))
    return tuple(headers)

"""Signatures, as whoever gets them would check them."""

import base64
import hashlib
import hmac
from typing import Any

import pytest

from tests.sources.webhook.boxes import names, plain_box, said
from tests.wire.site import Site


@pytest.mark.parametrize(
    ("options", "algorithm", "prefix"),
    [({}, hashlib.sha256, ""), ({"algorithm": "sha512", "prefix": "sha512="}, hashlib.sha512, "sha512=")],
)
async def test_the_signature_is_of_the_bytes_that_are_sent(
    options: dict[str, Any], algorithm: Any, prefix: str
) -> None:
    signature = {"secret": "s3cret-words", "header": "X-Sig", **options}
    async with Site(said(200, {})) as site:
        async with plain_box(site.url, options={"signature": signature}) as box:
            await box.call("hooks.call", {"name": "Zoë", "n": 1.5})
        sent = site.last
    assert sent.all("x-sig") == [prefix + hmac.new(b"s3cret-words", sent.body, algorithm).hexdigest()]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_what_has_no_body_is_not_signed_but_left_out(method: str) -> None:
    tools = {"gone": {"url": "gone", "method": method}, "stays": {"url": "stays"}}
    async with plain_box("http://127.0.0.1:9", options={"signature": {"secret": "s3cret"}, "tools": tools}) as box:
        assert names(box, "hooks") == {"hooks.stays"}
        [problem] = box.problems
    assert f"tool 'gone' is skipped: a {method} has no body" in problem


async def test_a_timestamp_is_signed_with_the_body() -> None:
    signature = {"secret": "s3cret-words", "encoding": "base64", "timestamp_header": "X-Time", "prefix": "v1,"}
    async with Site(said(200, {})) as site:
        async with plain_box(site.url, options={"signature": signature}) as box:
            await box.call("hooks.call", {"a": 1})
        sent = site.last
    [stamp] = sent.all("x-time")
    digest = hmac.new(b"s3cret-words", f"{stamp}.".encode() + sent.body, hashlib.sha256).digest()
    assert sent.all("x-signature-256") == [f"v1,{base64.b64encode(digest).decode()}"]


async def test_a_timestamp_may_stand_in_the_header_of_the_signature() -> None:
    signature = {"secret": "s3cret-words", "header": "Stripe-Signature", "prefix": "t={timestamp},v1="}
    async with Site(said(200, {})) as site:
        async with plain_box(site.url, options={"signature": signature}) as box:
            await box.call("hooks.call", {"a": 1})
        sent = site.last
    [told] = sent.all("stripe-signature")
    stamp = told.partition(",")[0].removeprefix("t=")
    assert stamp.isdigit()
    digest = hmac.new(b"s3cret-words", f"{stamp}.".encode() + sent.body, hashlib.sha256).hexdigest()
    assert told == f"t={stamp},v1={digest}"

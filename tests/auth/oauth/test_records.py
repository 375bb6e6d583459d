"""What is kept between two processes."""

import json
from typing import Any

import pytest

from tests.auth.oauth.flows import MCP, REDIRECT, public_client, server, tokens
from tests.auth.oauth.test_device import GRANT
from toolpost.auth.oauth.authorization import SignInContext, Transaction, begin_authorization
from toolpost.auth.oauth.client import Client
from toolpost.auth.oauth.jose import DpopKey
from toolpost.auth.oauth.records import pack_record, unpack_record
from toolpost.auth.oauth.tokens import TokenSet
from toolpost.auth.secret import Secret
from toolpost.contracts.errors import StoreError

CALLER = SignInContext(redirect_uri=REDIRECT, tenant="acme", user="ann", browser="b1nding", provider="gh", trace_id="t")
TRANSACTION = begin_authorization(
    server(scopes_supported=("a",)), public_client(), CALLER, resource=MCP, scopes=("a", "b"), dpop_key=DpopKey.new()
).transaction


@pytest.mark.parametrize(
    "record",
    [
        TRANSACTION,
        GRANT,
        server(auth_methods=("none",)),
        Client(id="x", secret=Secret("s3cret"), private_key=Secret("k"), secret_expires_at=7.0),
        tokens(id_token=Secret("1d"), dpop_key=Secret("k3y")),
        TokenSet(access_token=Secret("x")),
    ],
    ids=lambda record: type(record).__name__ + ("" if getattr(record, "resource", MCP) else " alone"),
)
def test_a_record_comes_back_as_it_was(record: Any) -> None:
    found = unpack_record(type(record), json.loads(json.dumps(pack_record(record))))
    assert found == record
    assert hash(found) == hash(record)


def test_a_record_of_another_version_is_read_as_far_as_it_goes() -> None:
    older = {"access_token": "x", "scopes": ["a"]}
    newer = {"access_token": "x", "scopes": ["a"], "colour": "red"}
    assert (
        unpack_record(TokenSet, older)
        == unpack_record(TokenSet, newer)
        == TokenSet(access_token=Secret("x"), scopes=("a",))
    )


@pytest.mark.parametrize("data", [None, [], {}, 7, {"server": "s3cret"}, "s3cret"], ids=repr)
def test_an_invalid_record_is_reported_without_its_content(data: object) -> None:
    with pytest.raises(StoreError, match="stored Transaction cannot be read") as refused:
        unpack_record(Transaction, data)
    assert "s3cret" not in str(refused.value)

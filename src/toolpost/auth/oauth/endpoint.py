"""One request to a token endpoint: who asks, with a proof of possession where one is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.auth.oauth.client import authenticated
from toolpost.auth.oauth.dpop import nonce_in
from toolpost.auth.oauth.flow import ACCEPT_JSON, Ask
from toolpost.auth.oauth.refusals import problem_of, secrets_in
from toolpost.auth.oauth.tokens import TokenWish, read_tokens

if TYPE_CHECKING:
    from toolpost.auth.oauth.client import Client
    from toolpost.auth.oauth.dpop import DpopKey
    from toolpost.auth.oauth.flow import Clock, Flow, Reply
    from toolpost.auth.oauth.metadata import ServerMetadata
    from toolpost.auth.oauth.tokens import TokenSet
    from toolpost.wire.requests import Pairs


def ask_endpoint(
    url: str, server: ServerMetadata, client: Client, form: Pairs, *, clock: Clock, dpop_key: DpopKey | None = None
) -> Flow[Reply]:
    """Post a form as this client; a server that wants a nonce in the proof is asked once more, with it."""

    def ask(nonce: str) -> Ask:
        headers, fields = authenticated(client, server, now=clock())
        if dpop_key is not None:
            headers = (*headers, ("DPoP", dpop_key.proof("POST", url, now=clock(), nonce=nonce)))
        return Ask(
            method="POST",
            url=url,
            headers=(*ACCEPT_JSON, *headers),
            form=(*form, *fields),
            documents=server.documents,
        )

    reply = yield ask("")
    nonce = nonce_in(reply.headers)
    if dpop_key is not None and nonce and problem_of(reply).code == "use_dpop_nonce":
        reply = yield ask(nonce)
    return reply


def ask_tokens(
    server: ServerMetadata,
    client: Client,
    form: Pairs,
    *,
    clock: Clock,
    resource: str | None = None,
    scopes: tuple[str, ...] = (),
    dpop_key: DpopKey | None = None,
) -> Flow[TokenSet]:
    """The tokens that a grant brings; the scopes are those that it was asked for, in this request or before."""
    wish = TokenWish(
        issuer=server.issuer,
        client_id=client.id,
        resource=resource,
        scopes=scopes,
        dpop_key=dpop_key,
        began=clock(),
        secrets=(*secrets_in(form), *([client.secret.reveal()] if client.secret else [])),
    )
    asked = (*form, ("resource", resource)) if resource else form
    reply = yield from ask_endpoint(server.token_endpoint, server, client, asked, clock=clock, dpop_key=dpop_key)
    return read_tokens(reply, wish)

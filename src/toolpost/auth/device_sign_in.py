"""Sign-ins by device code, for users without a browser on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.auth.consents import NO_CHALLENGE, ConnectedAccount, callback_url, with_redirect_uri
from toolpost.auth.oauth.authorization import select_scopes
from toolpost.auth.oauth.client import Client, obtain_client
from toolpost.auth.oauth.device import DeviceGrant, await_device, begin_device
from toolpost.auth.oauth.flow import Clock, Flow, run_flow
from toolpost.auth.oauth.sign_in import discover
from toolpost.auth.services import Service
from toolpost.contracts.errors import ToolAuthError
from toolpost.contracts.expiring_secret import expiring
from toolpost.contracts.principal import Principal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.auth.accounts import Accounts
    from toolpost.auth.oauth.sign_in import SignInPlan


async def start_device_sign_in(service: Service, accounts: Accounts, *, redirect_uri: str = "") -> DeviceGrant:
    """Request a device code for the user to enter (RFC 8628), and register a client first if needed."""
    if not service.attended:
        raise ToolAuthError(f"{service.display_name!r} needs no consent: its tools can be called without a sign-in.")
    plan = with_redirect_uri(service.current_plan(), callback_url(redirect_uri, service.provider))
    plan = await accounts.issuers.bind_client(service.provider, plan)
    clients = await accounts.issuers.clients(plan.profile.redirect_uris)
    flow = _request_device_code(service, plan, clients, accounts.clock)
    grant = await run_flow(flow, accounts.client_for(service))
    await accounts.issuers.keep_client(grant.client)
    codes = (grant.device_code.reveal(), grant.user_code)
    accounts.learn(expiring(codes, until=grant.expires, now=accounts.clock()))
    return grant


async def finish_device_sign_in(
    service: Service, accounts: Accounts, person: Principal, grant: DeviceGrant
) -> ConnectedAccount:
    """Poll until the user has entered the device code, and store the tokens; raise ToolAuthError if declined."""
    tokens = await await_device(grant, accounts.client_for(service), clock=accounts.clock)
    await accounts.keep(service, person, tokens, server=grant.server, client=grant.client)
    return ConnectedAccount(person, service.provider)


def _request_device_code(
    service: Service, plan: SignInPlan, known: Mapping[str, Client], clock: Clock
) -> Flow[DeviceGrant]:
    trust = plan.trust
    if plan.server is not None and plan.registered is not None:
        return (
            yield from begin_device(
                plan.server, plan.registered, trust=trust, resource=service.resource, scopes=plan.scopes, clock=clock
            )
        )
    discovered = yield from discover(plan, NO_CHALLENGE, known=known)
    server, own = discovered.server, known.get(discovered.server.issuer)
    client = yield from obtain_client(server, plan.profile, registered=plan.registered, known=own, clock=clock)
    scopes = select_scopes(wished=plan.scopes, resource=discovered.metadata, server=server)
    return (
        yield from begin_device(server, client, trust=trust, resource=discovered.resource, scopes=scopes, clock=clock)
    )

"""Sign-ins by a short code, for people whose browser is on another machine than the program (RFC 8628)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.auth.bindings import Binding
from toolpost.auth.consents import NO_DEMAND, Connected, callback_url, coming_back
from toolpost.auth.oauth.authorization import select_scopes
from toolpost.auth.oauth.device import begin_device
from toolpost.auth.oauth.driver import await_device, run_flow
from toolpost.auth.oauth.handshake import discover
from toolpost.auth.oauth.registration import obtain_client
from toolpost.contracts.errors import ToolAuthError
from toolpost.contracts.passing import passing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.auth.accounts import Accounts
    from toolpost.auth.oauth.client import Client
    from toolpost.auth.oauth.device import DeviceGrant
    from toolpost.auth.oauth.flow import Clock, Flow
    from toolpost.auth.oauth.handshake import SignIn
    from toolpost.auth.services import Service
    from toolpost.contracts.principal import Principal


async def begin_by_code(service: Service, accounts: Accounts, *, redirect_uri: str = "") -> DeviceGrant:
    """A code for the person to enter; where we must register first, it is as a client that comes back to here."""
    if not service.attended:
        raise ToolAuthError(f"{service.display_name!r} asks nobody for consent: its tools can be called as they are.")
    plan = coming_back(service.current_plan(), callback_url(redirect_uri, service.provider))
    plan = await accounts.bindings.tied(service.provider, plan)
    known = await accounts.bindings.clients(plan.profile.redirect_uris)
    asking = _asking(service, plan, known, accounts.clock)
    grant = await run_flow(asking, accounts.client_for(service))
    await accounts.bindings.keep_client(grant.client)
    codes = (grant.device_code.reveal(), grant.user_code)
    accounts.learn(passing(codes, until=grant.expires, now=accounts.clock()))
    return grant


async def finish_by_code(service: Service, accounts: Accounts, person: Principal, grant: DeviceGrant) -> Connected:
    """Wait until the code was entered and keep what that brought; ToolAuthError when the person said no."""
    tokens = await await_device(grant, accounts.client_for(service), clock=accounts.clock)
    binding = Binding(
        provider=service.provider, server=grant.server, client=grant.client, resource=grant.resource or ""
    )
    await accounts.keep(service, person, binding=binding, tokens=tokens)
    return Connected(person, service.provider)


def _asking(service: Service, plan: SignIn, known: Mapping[str, Client], clock: Clock) -> Flow[DeviceGrant]:
    trust = plan.trust
    if plan.server is not None and plan.registered is not None:
        return (
            yield from begin_device(
                plan.server, plan.registered, trust=trust, resource=service.resource, scopes=plan.scopes, clock=clock
            )
        )
    found = yield from discover(plan, NO_DEMAND, known=known)
    server, own = found.server, known.get(found.server.issuer)
    client = yield from obtain_client(server, plan.profile, registered=plan.registered, known=own, clock=clock)
    scopes = select_scopes(wished=plan.scopes, resource=found.metadata, server=server)
    return (yield from begin_device(server, client, trust=trust, resource=found.resource, scopes=scopes, clock=clock))

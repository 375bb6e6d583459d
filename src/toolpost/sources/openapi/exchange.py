"""One call of an operation, from its arguments to its output; a token that was refused is renewed once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolpost.contracts.calls import NO_CREDENTIAL
from toolpost.sources.openapi.answers import output_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolpost.contracts.calls import Credential, ToolOutput
    from toolpost.sources.openapi.credentials import Credentials
    from toolpost.sources.openapi.requests import Plan
    from toolpost.web.encoding import Pair
    from toolpost.web.files import File
    from toolpost.web.sending import Send


async def exchange(
    plan: Plan,
    arguments: Mapping[str, Any],
    *,
    send: Send,
    credentials: Credentials,
    credential: Credential = NO_CREDENTIAL,
    files: Mapping[str, File] | None = None,
    headers: Sequence[Pair] = (),
    secrets: Sequence[str] = (),
) -> ToolOutput:
    """Call an operation; `headers` are the operator's own, `secrets` what else must not be told."""
    operation = plan.operation
    planned = plan.request(arguments, files).with_headers(headers)
    presented = await credentials.present(operation, credential)
    reply = await send(planned.presenting(presented))
    if reply.status == 401 and credentials.forget(presented):
        # A request that was not let in had no effect, so that it may go again, whatever its method.
        presented = await credentials.present(operation, credential)
        reply = await send(planned.presenting(presented))
    output = output_of(
        operation,
        reply.status,
        reply.headers,
        reply.body,
        request=planned,
        arguments=arguments,
        secrets=(*presented.secrets, *secrets),
    )
    return output.noted("The stream went on; this is what came until then.") if reply.cut else output

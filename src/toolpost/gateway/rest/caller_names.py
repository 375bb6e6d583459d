"""Names of the keys with which calls were made."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.gateway.rest.operations import RestRequest


async def key_names(request: RestRequest) -> Mapping[str, str]:
    """Return the names of the tenant's keys by their ID."""
    return {key.id: key.name for key in await request.box.store.caller_keys.list(tenant=request.tenant)}

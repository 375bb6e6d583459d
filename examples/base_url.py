"""A REST API by its base URL, with a bearer token.

Prints:
stripe.list_charges
{'charges': [{'amount': 1200, 'currency': 'eur'}]}
sent: Bearer sk_example
"""

import asyncio
import os

from examples.servers import seen_credentials, web_api
from toolpost.compat.penguiflow.registry import ModelRegistry
from toolpost.compat.penguiflow.tools import AuthType, ExternalToolConfig, ToolNode, TransportType


async def main() -> None:
    """Connect by the API's OpenAPI document and call an operation."""
    os.environ["STRIPE_SECRET_KEY"] = "sk_example"
    with web_api() as site:
        config = ExternalToolConfig(
            name="stripe",
            transport=TransportType.HTTP,
            connection=f"{site}/openapi.json",
            base_url=site,
            auth_type=AuthType.BEARER,
            auth_config={"token": "${STRIPE_SECRET_KEY}"},
        )
        async with ToolNode(config, ModelRegistry()) as stripe:
            print(", ".join(spec.name for spec in stripe.get_tools()))
            print(await stripe.call("list_charges", {}))
        print("sent:", seen_credentials()[-1])


if __name__ == "__main__":
    asyncio.run(main())

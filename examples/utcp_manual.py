"""An API that publishes a UTCP manual, with an API key in a header.

Prints:
Discovered 2 weather tools
{'sky': 'rain'}
sent: ['weather-key']
"""

import asyncio
import os

from examples.servers import seen_credentials, web_api
from toolpost.compat.penguiflow.registry import ModelRegistry
from toolpost.compat.penguiflow.tools import AuthType, ExternalToolConfig, ToolNode, TransportType, UtcpMode


async def main() -> None:
    """Connect, count the tools and call one."""
    registry = ModelRegistry()
    os.environ["WEATHER_API_KEY"] = "weather-key"
    with web_api() as site:
        weather_api = ToolNode(
            config=ExternalToolConfig(
                name="weather",
                transport=TransportType.UTCP,
                connection=f"{site}/.well-known/utcp.json",
                utcp_mode=UtcpMode.MANUAL_URL,
                auth_type=AuthType.API_KEY,
                auth_config={"api_key": "${WEATHER_API_KEY}", "header": "X-API-Key"},
            ),
            registry=registry,
        )
        await weather_api.connect()
        print(f"Discovered {len(weather_api.get_tools())} weather tools")
        print(await weather_api.call("weather.forecast", {"city": "Hamburg"}))
        await weather_api.close()
        print("sent:", seen_credentials())


if __name__ == "__main__":
    asyncio.run(main())

"""A workflow of n8n as a tool: checked arguments, a POST to its webhook, a checked answer.

Prints:
n8n.onboard {'started': {'name': 'Ann'}}
refused: validation_failed
"""

import asyncio

from examples.servers import web_api
from toolpost import Completed, Failed, Settings, Toolbox


async def main() -> None:
    """Call the workflow with right and wrong arguments."""
    with web_api() as site:
        onboard = {
            "url": "onboard",
            "description": "Onboard a person.",
            "input_schema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
            "output_schema": {"type": "object", "required": ["started"]},
            "destructive": False,
        }
        source = {
            "name": "n8n",
            "transport": "webhook",
            "connection": f"{site}/webhook",
            "options": {"kind": "plain", "tools": {"onboard": onboard}},
        }
        settings = Settings.model_validate({"data_dir": None, "sources": [source]})
        async with Toolbox(settings=settings) as box:
            done = await box.call("n8n.onboard", {"name": "Ann"})
            if isinstance(done, Completed):
                print(done.tool_name, done.content)
            refused = await box.call("n8n.onboard", {"nickname": "Ann"})
            if isinstance(refused, Failed):
                print("refused:", refused.error.error_code)


if __name__ == "__main__":
    asyncio.run(main())

"""A program that calls a tool again and again, with a webhook: `webhook_sender.py FOLDER RECEIVER`."""

import asyncio
import sys
from pathlib import Path

from tests.toolbox.test_wiring_webhooks import Receiver, add
from toolpost import Toolbox


async def main() -> None:
    receiver = Receiver()
    receiver.url = sys.argv[2]
    async with Toolbox(tools=[add], settings=receiver.settings(Path(sys.argv[1]))) as box:
        while True:
            await box.call("add", {"a": 1, "b": 1})
            await asyncio.sleep(0.005)


asyncio.run(main())

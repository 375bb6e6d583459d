"""`python -m tools.n8n`: install n8n if need be, run the tests of webhooks against it, and record its answers anew.

`N8N_FOLDER` says where it is installed, if not in `.parts/n8n`.
"""

import asyncio
import os
import sys
from pathlib import Path

from tests.parts import ROOT
from tests.sources.webhook.replay import RECORDED
from tools.n8n.installing import installed
from tools.n8n.recording import Recorder
from tools.n8n.running import Instance, running

TESTS = "tests/sources/webhook"


async def main(folder: Path) -> int:
    """Run it all; the recording is written only when every test passed."""
    await installed(folder)
    async with running(folder) as instance:
        recorder = Recorder(instance)
        async with recorder.site as site:
            code = await _tested(site.url, instance)
        await recorder.close()
    if code == 0:
        recorder.write(RECORDED)
        print(f"recorded: {RECORDED.relative_to(ROOT)}")
    return code


async def _tested(recorder: str, instance: Instance) -> int:
    env = {
        **os.environ,
        "TOOLPOST_N8N_URL": recorder,
        "TOOLPOST_N8N_KEY": instance.key,
        "TOOLPOST_N8N_DIRECT": instance.url,
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", TESTS]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=env)  # noqa: TID251 - the tests are a program
    return await process.wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(Path(os.environ.get("N8N_FOLDER", ROOT / ".parts" / "n8n")).resolve())))

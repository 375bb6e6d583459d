"""oidc-provider, an authorization server that nobody here wrote, and a person with a browser in front of it."""

import html
import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx2

from tests.parts import ROOT, found, node24
from toolpost.auth.oauth.authorization import callback_parameters

RESOURCE = "http://127.0.0.1:9500/mcp"
MOST_STEPS = 20


def entry() -> Path:
    """Where oidc-provider is installed: in the project, or in the folder that TOOLPOST_OIDC names."""
    path = Path("node_modules/oidc-provider/lib/index.js")
    elsewhere = os.environ.get("TOOLPOST_OIDC")
    if elsewhere and not (ROOT / path).is_file():
        return Path(elsewhere, path)
    return found(str(path))


@contextmanager
def provider(*clients: dict[str, Any], token_ttl_s: int = 600) -> Iterator[str]:
    """The server while it runs; gives its issuer."""
    program = Path(__file__).with_name("provider.mjs")
    command = [str(node24()), str(program), str(entry()), json.dumps(clients), str(token_ttl_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            issuer = process.stdout.readline().strip()
            assert issuer, "oidc-provider ended before it listened"
            yield issuer
        finally:
            process.kill()


class Browser:
    """A person who signs in, as alice if nothing else is said, and says yes to everything, or no."""

    def __init__(self, redirect_uri: str, *, says_yes: bool = True, login: str = "alice") -> None:
        self.redirect_uri = redirect_uri
        self.login = login
        self.says_yes = says_yes

    async def visit(self, url: str) -> dict[str, str]:
        """Go where a URL leads; what the callback is given."""
        async with httpx2.AsyncClient(follow_redirects=False, trust_env=False) as web:
            page = await web.get(url)
            for _ in range(MOST_STEPS):
                address = page.headers.get("location", "")
                if address.startswith(self.redirect_uri):
                    return callback_parameters(address)
                page = await self._next(web, page, address)
        raise AssertionError("the sign-in never ended")

    async def enter(self, url: str) -> str:
        """Confirm a device's code; what the last page says."""
        async with httpx2.AsyncClient(follow_redirects=False, trust_env=False) as web:
            page = await web.get(url)
            for _ in range(MOST_STEPS):
                address = page.headers.get("location", "")
                if not address and "<form" not in page.text:
                    return page.text
                page = await self._next(web, page, address)
        raise AssertionError("the sign-in never ended")

    async def _next(self, web: httpx2.AsyncClient, page: httpx2.Response, address: str) -> httpx2.Response:
        here = str(page.url)
        if address:
            return await web.get(urljoin(here, address))
        abort = re.search(r'href="([^"]+/abort)"', page.text)
        if abort and not self.says_yes:
            return await web.get(urljoin(here, abort[1]))
        form = re.search(r'action="([^"]+)"', page.text)
        assert form, page.text
        fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', page.text))
        if fields.get("prompt") == "login":
            fields |= {"login": self.login, "password": "x"}
        if "xsrf" in fields:
            fields["confirm"] = "yes"
        return await web.post(urljoin(here, html.unescape(form[1])), data=fields)

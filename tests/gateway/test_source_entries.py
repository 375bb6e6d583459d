"""The entry of a source in the configuration, over REST, without its secrets."""

from pathlib import Path
from typing import Any

import yaml

from tests.gateway.serving import served
from tests.wire.site import Site, reply

SECRET = "sk-live-1234567890abcdef"
CONFIG = """\
sources:
  - name: crm
    transport: mcp
    connection: {url}/mcp?api_key=sk-live-1234567890abcdef
    headers: {{X-Api-Key: sk-live-1234567890abcdef, Accept-Language: de}}
    auth_type: bearer
    auth_config: {{token: "${{CRM_TOKEN}}"}}
    options: {{protocol: legacy}}
  - {{name: archive, transport: graphql, connection: "{url}/graphql", enabled: false}}
"""


async def test_the_entry_of_a_source_has_references_instead_of_secrets(tmp_path: Path) -> None:
    async with Site(answer=reply(404)) as site:
        (tmp_path / ".env").write_text(f"CRM_TOKEN={SECRET}\n")
        (tmp_path / "toolpost.yaml").write_text(CONFIG.format(url=site.url))
        async with served(tmp_path / "data", config=tmp_path / "toolpost.yaml") as gate:
            found = (await gate.http.get("/api/v1/sources/crm")).json()
            disabled = (await gate.http.get("/api/v1/sources/archive")).json()
            listed = (await gate.http.get("/api/v1/sources")).json()
            agent = await gate.key("acme:bot", "call")
            seen = (await gate.http.get("/api/v1/sources/crm", headers=agent)).json()

    entry: dict[str, Any] = yaml.safe_load(found["yaml"])["sources"][0]
    assert (entry["name"], entry["auth_config"]) == ("crm", {"token": "${CRM_TOKEN}"})
    assert entry["headers"]["X-Api-Key"].startswith("${")
    assert entry["headers"]["Accept-Language"] == "de"
    assert SECRET not in found["yaml"]
    assert yaml.safe_load(disabled["yaml"])["sources"][0]["enabled"] is False
    assert all("yaml" not in one for one in [*listed, seen])

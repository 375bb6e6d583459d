"""`auth_config.resource`: a name for what tokens are for, asked only where nobody else says who issues them."""

from pathlib import Path
from typing import Any

import pytest

from tests.auth.small_issuer import ANN, SmallIssuer, connect, source, toolbox
from tests.wire.site import Site, reply
from toolpost import Completed, ExternalToolConfig, Failed, Paused

NOWHERE = "https://audience.invalid"
ROBOT: dict[str, Any] = {"grant": "client_credentials", "client_id": "robot", "client_secret": "canary-of-the-robot"}


@pytest.mark.parametrize("resource", [NOWHERE, "urn:example:notes", "https://audience.invalid/?part=1"])
async def test_beside_an_issuer_a_resource_is_only_a_name(tmp_path: Path, resource: str) -> None:
    async with SmallIssuer() as site:
        async with toolbox(None, source("notes", site, tmp_path, **ROBOT, issuer=site.url, resource=resource)) as box:
            assert isinstance(await box.call("notes.read", {}, user=ANN), Completed)
            assert isinstance(await box.call("notes.read", {}, user=ANN), Completed)
        assert [form["resource"] for form in site.forms] == [resource]
        assert not any("protected-resource" in received.path for received in site.requests)


async def test_beside_endpoints_a_resource_is_only_a_name(tmp_path: Path) -> None:
    async with SmallIssuer() as site:
        written = {**site.endpoints(**ROBOT), "resource": NOWHERE}
        async with toolbox(None, source("notes", site, tmp_path, **written)) as box:
            assert isinstance(await box.call("notes.read", {}, user=ANN), Completed)
        assert [form["resource"] for form in site.forms] == [NOWHERE]


async def test_a_person_signs_in_for_a_resource_that_no_one_can_reach(tmp_path: Path) -> None:
    async with SmallIssuer() as site:
        written = {"issuer": site.url, "resource": NOWHERE}
        async with toolbox(tmp_path, source("notes", site, tmp_path, **written)) as box:
            assert isinstance(await box.call("notes.read", {}, user=ANN), Paused)
            await connect(box, "notes")
            assert isinstance(await box.call("notes.read", {}, user=ANN), Completed)
        assert site.forms[0]["resource"] == NOWHERE


async def test_tokens_for_one_resource_are_not_used_for_another(tmp_path: Path) -> None:
    async with SmallIssuer() as site:
        for resource in ("urn:example:notes", "urn:example:letters"):
            written = {"issuer": site.url, "resource": resource}
            async with toolbox(tmp_path, source("notes", site, tmp_path, **written)) as box:
                assert isinstance(await box.call("notes.read", {}, user=ANN), Paused)
                await connect(box, "notes")


async def test_two_sources_of_one_account_must_mean_one_resource(tmp_path: Path) -> None:
    async with SmallIssuer() as site:
        sources = [
            source(name, site, tmp_path, issuer=site.url, provider="acme", resource=f"urn:example:{name}")
            for name in ("notes", "letters")
        ]
        async with toolbox(None, *sources) as box:
            errors = [state.error for state in box.report]
    assert "write the same auth_config.resource into both" in str(errors)


async def test_a_resource_that_must_say_its_issuer_and_cannot_be_asked_is_named(tmp_path: Path) -> None:
    async with SmallIssuer() as site:
        said = await _failure(source("notes", site, tmp_path, **ROBOT, resource=NOWHERE))
    assert f"issuer of its tokens from auth_config.resource {NOWHERE!r}" in said
    assert "neither issuer nor auth_url and token_url are configured" in said
    assert "'audience.invalid' could not be found" in said


async def test_a_resource_that_must_say_its_issuer_and_does_not_is_named(tmp_path: Path) -> None:
    async with Site(answer=reply(404)) as site:
        said = await _failure(source("notes", site, tmp_path, **ROBOT, resource=site.url))
    assert f"issuer of its tokens from auth_config.resource {site.url!r}" in said


@pytest.mark.parametrize("named", [{"resource": NOWHERE}, {}], ids=["resource", "no_resource"])
async def test_an_issuer_that_cannot_be_asked_is_named(tmp_path: Path, named: dict[str, str]) -> None:
    async with SmallIssuer() as site:
        said = await _failure(source("notes", site, tmp_path, **ROBOT, issuer="https://login.invalid", **named))
    assert "the issuer 'https://login.invalid'" in said
    assert "audience" not in said


async def _failure(config: ExternalToolConfig) -> str:
    async with toolbox(None, config) as box:
        outcome = await box.call("notes.read", {}, user=ANN)
    assert isinstance(outcome, Failed)
    return str(outcome.error)

"""The last use of keys: every interface is one, and the store is written once a minute."""

from pathlib import Path
from typing import Any

import pytest

from tests.gateway.serving import Served, add, drop, served
from toolpost.contracts.callers import KEY_ID, Caller
from toolpost.contracts.errors import StoreError
from toolpost.contracts.principal import Principal
from toolpost.gateway.access import KeyUses
from toolpost.gateway.key_uses import write_uses

KEYS = "/api/v1/keys"
MCP: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
A2A: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "none"}}
ACCEPT = {"Accept": "application/json, text/event-stream"}
REQUESTS: dict[str, tuple[str, str, Any]] = {
    "rest": ("GET", "/api/v1/tools", None),
    "mcp": ("POST", "/mcp", MCP),
    "a2a": ("POST", "/a2a", A2A),
    "refused": ("GET", KEYS, None),
}


class Times:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def caller_with(key_id: str) -> Caller:
    return Caller(f"{KEY_ID}{key_id}", Principal("acme", "bot"), frozenset({"call"}))


async def created(gate: Served, **body: Any) -> tuple[str, dict[str, str]]:
    made = (await gate.http.post(KEYS, json={"name": "bot", "scopes": ["call"], **body})).json()
    return made["key"]["id"], {"Authorization": f"Bearer {made['token']}"}


async def used_at(gate: Served, key_id: str) -> float | None:
    return {one["id"]: one["last_used_at"] for one in (await gate.http.get(KEYS)).json()["items"]}[key_id]


@pytest.mark.req("OPS-04")
@pytest.mark.parametrize("kind", REQUESTS)
async def test_every_interface_is_a_use_that_survives_a_restart(tmp_path: Path, kind: str) -> None:
    method, path, body = REQUESTS[kind]
    async with served(tmp_path / "data", [add]) as gate:
        key_id, bearer = await created(gate)
        before = await used_at(gate, key_id)
        await gate.http.request(method, path, json=body, headers=bearer | ACCEPT)
        used = await used_at(gate, key_id)
    async with served(tmp_path / "data", [add]) as gate:
        after = await used_at(gate, key_id)

    assert before is None
    assert used is not None
    assert after is not None
    assert used <= after < used + 60


@pytest.mark.req("OPS-04")
async def test_an_open_stream_is_a_use(gate: Served) -> None:
    key_id, bearer = await created(gate)
    async with gate.http.stream("GET", "/api/v1/events", headers=bearer) as stream:
        assert stream.status_code == 200
        times = [await used_at(gate, key_id) for _ in range(2)]

    assert None not in times
    assert times == sorted(set(times), key=lambda at: at or 0.0)


async def test_a_session_is_a_use_of_the_key_that_opened_it(gate: Served) -> None:
    key_id, bearer = await created(gate, name="olga", scopes=["call", "answer"], person=True)
    session = (await gate.http.post("/api/v1/sessions", headers=bearer)).json()["token"]
    opened = await used_at(gate, key_id)
    await gate.http.get("/api/v1/me", headers={"Authorization": f"Bearer {session}"})
    later = await used_at(gate, key_id)

    assert opened is not None
    assert later is not None
    assert later > opened


async def test_a_revoked_key_leaves_no_use(gate: Served) -> None:
    key_id, bearer = await created(gate)
    await gate.http.get("/api/v1/tools", headers=bearer)
    uses, written = KeyUses(), dict[str, float]()
    uses.note(caller_with(key_id))
    await write_uses(uses, gate.box.store, written)
    stored = await gate.box.store.key_uses.list()
    await gate.http.delete(f"{KEYS}/{key_id}")
    uses.note(caller_with(key_id))
    await write_uses(uses, gate.box.store, written)

    assert stored.keys() == {key_id}
    assert await gate.box.store.key_uses.list() == {}


async def test_requests_are_written_together_and_again_only_after_the_next_use(
    gate: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    (key_id, _), clock, saved = await created(gate), Times(), list[float]()
    save = gate.box.store.key_uses.save

    async def counted(key: Any, *, at: float) -> None:
        saved.append(at)
        await save(key, at=at)

    monkeypatch.setattr(gate.box.store.key_uses, "save", counted)
    uses, written = KeyUses(clock), dict[str, float]()
    for _ in range(100):
        clock.now += 1
        uses.note(caller_with(key_id))
    for _ in range(3):
        await write_uses(uses, gate.box.store, written)
    clock.now += 60
    uses.note(caller_with(key_id))
    await write_uses(uses, gate.box.store, written)

    assert saved == [1100.0, 1160.0]


async def test_a_store_that_fails_gets_the_use_the_next_time(gate: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    (key_id, _), uses, written = await created(gate), KeyUses(), dict[str, float]()
    uses.note(caller_with(key_id))

    async def fail(*_: Any, **__: Any) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(gate.box.store.key_uses, "save", fail)
        await write_uses(uses, gate.box.store, written)
    await write_uses(uses, gate.box.store, written)

    assert (await gate.box.store.key_uses.list()).keys() == {key_id}


async def test_erasing_a_user_erases_the_uses_of_its_keys(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [add, drop]) as gate:
        key_id, _ = await created(gate)
        uses = KeyUses()
        uses.note(caller_with(key_id))
        await write_uses(uses, gate.box.store, {})
        await gate.box.store.forget(Principal("acme", "bot"))

        assert await gate.box.store.key_uses.list() == {}

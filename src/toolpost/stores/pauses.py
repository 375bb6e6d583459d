"""Pauses of a planner in any state store: stored under a token, claimed by one process, saved by step, finished.

The record under the token is followed by links with derived names: a claim, the steps of the claimant, a release, an
end. A link is written once: of several writers of the same link, one continues.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, Literal, Protocol, runtime_checkable

from toolpost.contracts.errors import StoreError, ToolConflictError
from toolpost.contracts.storage import PlannerStateStore
from toolpost.schema.secrets import drop_secrets

Link = Literal["claim", "step", "free", "done"]

_UNKNOWN = "no pause has this token: it is unknown, has expired, or was stored in a process that has ended"
_RESUMED = "this pause was resumed before"
_TAKEN = "another run has or had this token; resume that run, or use another token"
_HELD = "this pause is being resumed; it can be resumed again if that fails or its process ends"
_OVERTAKEN = "another process has resumed this run and continues it; this process stops here"


@runtime_checkable
class _KeepsPauses(PlannerStateStore, Protocol):
    """A state store with the optional methods."""


@runtime_checkable
class _KeepsClaims(Protocol):
    """A state store with an atomic claim that knows which claimants still run, such as `Store.state`."""

    async def claim_planner_state(self, token: str, payload: dict[str, Any]) -> bool:
        """Store a record under a token without one; True for exactly one caller."""
        ...

    async def is_claimed(self, token: str) -> bool:
        """Return whether the process that claimed a token still runs."""
        ...

    async def drop_planner_states(self, tokens: Sequence[str]) -> None:
        """Delete the records of these tokens."""
        ...


class PlannerPauses:
    """Stores pauses in any state store; each is resumed once by its token.

    If the store lacks the optional methods, pauses end with the process, and `durable` is False. A store with
    `claim_planner_state`, such as `Store.state`, lets exactly one process claim a pause, lets another claim it after
    that process has ended, and deletes finished pauses. With other stores, claims rely on ordered writes of one token,
    and a claim is valid for `lease_s` after its last step.
    """

    def __init__(
        self,
        store: object = None,
        *,
        ttl_s: float | None = None,
        lease_s: float = 300.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store: PlannerStateStore = store if isinstance(store, _KeepsPauses) else _MemoryPauses()
        self._ttl_s = ttl_s
        self._lease_s = lease_s
        self._clock = clock

    async def keep(self, payload: Mapping[str, Any]) -> str:
        """Store a pause without the secrets of its `tool_context`; return its token, which is a secret."""
        token = secrets.token_urlsafe(32)
        await self._chain(token).save(payload)
        return token

    async def begin(self, token: str, payload: Mapping[str, Any]) -> ClaimedPause:
        """Store a new run under a token, claimed by this process; KeyError if the token was used before."""
        chain = self._chain(token)
        await chain.load()
        if not await chain.begin(payload) or not await chain.add("claim"):
            raise KeyError(_TAKEN)
        return ClaimedPause(chain, chain.payload, [])

    async def take(self, token: str, *, user: str | None = None) -> dict[str, Any]:
        """Return the pause of a token to exactly one caller; KeyError if there is none, or it was resumed before.

        With `user`, a pause of another `user` is not returned, and its token stays valid.
        """
        claimed = await self.claim(token, user=user)
        await claimed.finish()
        return claimed.payload

    async def claim(self, token: str, *, user: str | None = None) -> ClaimedPause:
        """Claim the pause of a token until it is finished or released, or this process ends; KeyError as for `take`."""
        chain = self._chain(token)
        await chain.load()
        await chain.check(user)
        recovered = chain.was_held
        if not await chain.add("claim") or not await chain.is_mine():
            raise KeyError(_HELD)
        return ClaimedPause(chain, chain.payload, chain.steps, recovered=recovered)

    def _chain(self, token: str) -> _Chain:
        return _Chain(self._store, token, ttl_s=self._ttl_s, lease_s=self._lease_s, clock=self._clock)


class ClaimedPause:
    """A pause that this process has claimed: its payload, and the `steps` of a claimant that has ended.

    `recovered` means that there was such a claimant. The methods raise ToolConflictError if another process has claimed
    the pause.
    """

    def __init__(
        self, chain: _Chain, payload: dict[str, Any], steps: list[dict[str, Any]], *, recovered: bool = False
    ) -> None:
        self.payload = payload
        self.steps = steps
        self.recovered = recovered
        self._chain = chain

    async def save(self, step: Mapping[str, Any]) -> None:
        """Store a step, from which another process resumes if this one ends."""
        if not await self._chain.add("step", step):
            raise ToolConflictError(_OVERTAKEN, code="run_overtaken")

    async def finish(self) -> None:
        """Consume the token; delete the pause if the store supports that."""
        if not await self._chain.finish():
            raise ToolConflictError(_OVERTAKEN, code="run_overtaken")

    async def release(self, payload: Mapping[str, Any]) -> None:
        """Let the same token resume from this payload, unless another process continues the run."""
        await self._chain.release(payload)


class _Chain:
    """The record of a pause and its links."""

    def __init__(
        self,
        store: PlannerStateStore,
        token: str,
        *,
        ttl_s: float | None,
        lease_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._claims = store if isinstance(store, _KeepsClaims) else None
        self._token = token
        self._digest = sha256(token.encode()).hexdigest()
        self._ttl_s = ttl_s
        self._lease_s = lease_s
        self._clock = clock
        self._base: dict[str, Any] = {}
        self._links: list[dict[str, Any]] = []

    async def load(self) -> None:
        """Read the record and all links."""
        self._base = await self._store.load_planner_state(self._token) if self._token else {}
        self._links = []
        while link := await self._store.load_planner_state(self._name(len(self._links) + 1)):
            self._links.append(link)

    async def check(self, user: str | None) -> None:
        """Raise KeyError unless the pause can be claimed by this user now."""
        if self._last == "done":
            raise KeyError(_RESUMED)
        if self.was_held and await self._is_held():
            raise KeyError(_HELD)
        state = self._kept
        expires_at = state.get("expires_at")
        if "payload" not in state or (expires_at is not None and expires_at <= self._clock()):
            raise KeyError(_RESUMED if "resumed" in state else _UNKNOWN)
        if user is not None and state["payload"].get("user") != user:
            raise KeyError("no pause of this user has this token")

    @property
    def was_held(self) -> bool:
        """Whether the pause was claimed and neither finished nor released."""
        return self._last in {"claim", "step"}

    @property
    def _last(self) -> str:
        return self._links[-1]["link"] if self._links else ""

    async def _is_held(self) -> bool:
        if self._claims is not None:
            return await self._claims.is_claimed(self._name(len(self._links)))
        return bool(self._links[-1]["until"] > self._clock())

    @property
    def payload(self) -> dict[str, Any]:
        """The payload as stored, or as last released."""
        payload: dict[str, Any] = self._kept["payload"]
        return payload

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The steps saved since the payload."""
        start = max((at for at, link in enumerate(self._links, 1) if link["link"] == "free"), default=0)
        return [link["payload"] for link in self._links[start:] if link["link"] == "step"]

    @property
    def _kept(self) -> dict[str, Any]:
        return next((link for link in reversed(self._links) if link["link"] == "free"), self._base)

    async def save(self, payload: Mapping[str, Any]) -> None:
        """Store the record, replacing an earlier one."""
        await self._store.save_planner_state(self._token, self._lasting(payload))

    async def begin(self, payload: Mapping[str, Any]) -> bool:
        """Store the record unless there is one; return whether it was stored."""
        if self._base or self._links:
            return False
        self._base = {**self._lasting(payload), "by": secrets.token_hex(8)}
        return await self._is_first(self._token, self._base)

    async def add(self, link: Link, payload: Mapping[str, Any] | None = None) -> bool:
        """Store the next link; return False if another process has stored one in its place."""
        state, by = self._kept, secrets.token_hex(8)
        record: dict[str, Any] = {"link": link, "by": by, **{key: state.get(key) for key in ("user", "expires_at")}}
        if link == "free":
            record |= self._lasting(payload or {})
        elif payload is not None:
            record["payload"] = dict(payload)
        if link in {"claim", "step"}:
            record["until"] = self._clock() + self._lease_s
        is_first = await self._is_first(self._name(len(self._links) + 1), record)
        if is_first:
            self._links.append(record)
        return is_first

    async def is_mine(self) -> bool:
        """Return whether this claim is valid: a claim after the deletion is one of a finished pause."""
        if self._claims is None:
            return True
        # All links are deleted together: if the first and the last exist, so do the others.
        base = await self._store.load_planner_state(self._token)
        ends = [(number, self._links[number - 1]["by"]) for number in (1, len(self._links))]
        standing = [(await self._store.load_planner_state(self._name(number))).get("by") == by for number, by in ends]
        if "payload" in base and all(standing):
            return True
        await self._claims.drop_planner_states([self._name(len(self._links))])
        return False

    async def finish(self) -> bool:
        """End the chain; if the store supports deletion, only a mark remains."""
        if self._claims is None:
            return await self.add("done")
        mark = {"resumed": True, **{key: self._base.get(key) for key in ("user", "expires_at")}}
        await self._store.save_planner_state(self._token, mark)
        await self._drop_links()
        return True

    async def release(self, payload: Mapping[str, Any]) -> None:
        """Let the token resume from another payload."""
        if self._claims is None:
            await self.add("free", payload)
            return
        await self.save(payload)
        await self._drop_links()

    async def _drop_links(self) -> None:
        if self._claims is not None:
            with suppress(StoreError):  # the record already shows the result
                await self._claims.drop_planner_states([self._name(at + 1) for at in range(len(self._links))])

    def _lasting(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return a payload without secrets, with its user and expiry for deletion."""
        copy = dict(payload)
        if "tool_context" in copy:
            copy["tool_context"] = drop_secrets(copy["tool_context"])
        expires_at = None if self._ttl_s is None else self._clock() + self._ttl_s
        return {"payload": copy, "user": copy.get("user"), "expires_at": expires_at}

    async def _is_first(self, name: str, record: dict[str, Any]) -> bool:
        if self._claims is not None:
            return await self._claims.claim_planner_state(name, record)
        try:
            await self._store.save_planner_state(name, record)
        except Exception:
            # Another process wrote it first and the store rejects a second record, or only the response was lost.
            if not await self._store.load_planner_state(name):
                raise
        return bool((await self._store.load_planner_state(name)).get("by") == record["by"])

    def _name(self, number: int) -> str:
        """Return the name of a link, which does not reveal the token."""
        return f"link-{number}-{self._digest}"


class _MemoryPauses:
    """Pauses in the memory of this process."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Any]] = {}

    async def is_claimed(self, token: str) -> bool:
        return token in self._kept

    async def save_planner_state(self, token: str, payload: dict[str, Any]) -> None:
        self._kept[token] = payload

    async def load_planner_state(self, token: str) -> dict[str, Any]:
        return self._kept.get(token, {})

    async def claim_planner_state(self, token: str, payload: dict[str, Any]) -> bool:
        return self._kept.setdefault(token, payload) is payload

    async def drop_planner_states(self, tokens: Sequence[str]) -> None:
        for token in tokens:
            self._kept.pop(token, None)

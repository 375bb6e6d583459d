"""The data that stays on one machine, regardless of the database."""

from __future__ import annotations

from typing import NamedTuple

from toolpost.stores.agent_records.folders import SESSION_FOLDER, SHARED_MEMORY, TASK_FOLDER, TENANTS, USER_MEMORY

_PER_MACHINE = "an agent continues on the machine that it began on"
_CACHE = "a cache; each machine fills its own"


class LocalData(NamedTuple):
    """Data that a store does not contain; `name` is an entry of the data folder, or describes another place."""

    name: str
    content: str
    consequence: str


LOCAL_DATA = (
    LocalData("artifacts", "contents of artifacts", "set `artifacts` to a bucket, or share this folder"),
    LocalData(TASK_FOLDER, "logs of agents' tasks", _PER_MACHINE),
    LocalData(SESSION_FOLDER, "sessions of main agents", _PER_MACHINE),
    LocalData(SHARED_MEMORY, "memory that a tenant's agents share", _PER_MACHINE),
    LocalData(USER_MEMORY, "memory of each user", _PER_MACHINE),
    LocalData(TENANTS, "the four folders above for other tenants than `local`", _PER_MACHINE),
    LocalData("definitions", "definitions of tools as they were first seen", "share them with `toolpost.lock`"),
    LocalData("documents", "API documents of sources", _CACHE),
    LocalData("listings", "tool listings of MCP servers", _CACHE),
    LocalData(
        "token",
        "token of the operator on this machine",
        "create a caller key for other machines, or set `server.token`",
    ),
    LocalData("key", "encryption key", "give it to every machine that opens the database, with `accounts.key`"),
    LocalData("temporary folder", "sockets of a gateway's workers", "each machine forwards among its own workers"),
    LocalData("memory of workers", "sources that were added by REST", "add them to the configuration"),
)
"""Everything that a second machine does not see; docs/deployment.md has the same list, and a test compares them."""

"""Prune and erase the records of agents in a data folder."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

from toolpost.contracts.errors import StoreError
from toolpost.contracts.principal import Principal
from toolpost.stores.agent_records.folders import (
    SESSION_FOLDER,
    TASK_FOLDER,
    TENANTS,
    USER_MEMORY,
    session_folder,
    tenant_folder,
    user_folder,
)
from toolpost.stores.agent_records.sessions import SessionFile
from toolpost.stores.agent_records.task_logs import TaskLogs


class AgentFiles:
    """Implements `AgentRecords` with the files of all tenants below a data folder."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    async def prune(self, before: float) -> dict[str, int]:
        return await asyncio.to_thread(self._prune, before)

    async def forget(self, principal: Principal) -> dict[str, int]:
        return await asyncio.to_thread(self._forget, principal)

    def _prune(self, before: float) -> dict[str, int]:
        tasks = sum(TaskLogs(folder).prune(before) for folder in self._folders(TASK_FOLDER))
        people = [person for folder in self._folders(SESSION_FOLDER) for person in folder.iterdir() if person.is_dir()]
        return {"tasks": tasks, "sessions": sum(SessionFile(person).remove(before) for person in people)}

    def _forget(self, person: Principal) -> dict[str, int]:
        session = SessionFile(session_folder(self._data_dir, person))
        removed, is_open = session.remove(), session.folder.exists()
        logs = TaskLogs(tenant_folder(self._data_dir, TASK_FOLDER, person.tenant))
        tasks = logs.forget(str(person), only_ended=is_open)
        memory = _remove_folder(user_folder(self._data_dir, USER_MEMORY, person))
        return {"tasks": tasks, "sessions": removed, "memory": memory, "under_way": int(is_open)}

    def _folders(self, name: str) -> Iterator[Path]:
        homes = [self._data_dir, *(self._data_dir / TENANTS).glob("*")]
        return (folder for home in homes if (folder := home / name).is_dir())


def _remove_folder(folder: Path) -> int:
    """Delete a folder of memory; return the number of its files, without their earlier versions."""
    files = [path for path in folder.rglob("*.md") if ".history" not in path.parts]
    try:
        if folder.is_dir():
            shutil.rmtree(folder)
    except OSError as error:
        raise StoreError(f"{str(folder)!r} cannot be written: {error.strerror}", cause=error) from error
    return len(files)

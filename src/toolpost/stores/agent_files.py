"""Files of agents below a data folder: where those of a tenant and of a person are, and their removal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.stores.sessions import SessionFile
from toolpost.stores.task_logs import TASK_FOLDER, TaskLogs

SESSION_FOLDER = "sessions"
_TENANTS = "tenants"


def tenant_folder(data_dir: Path, name: str, tenant: str) -> Path:
    """Return a tenant's folder; the local tenant's is below the data folder itself, none lies within another's."""
    return (data_dir if tenant == LOCAL_TENANT else data_dir / _TENANTS / _file_name(tenant)) / name


def session_folder(data_dir: Path, person: Principal) -> Path:
    """Return the folder of a person's sessions, which others of the tenant do not read."""
    return tenant_folder(data_dir, SESSION_FOLDER, person.tenant) / _file_name(person.user)


class AgentFiles:
    """The task logs and sessions of all tenants below a data folder."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def prune(self, before: float) -> dict[str, int]:
        """Delete task logs and sessions that nobody has written to since; return how many of each.

        Tasks that wait for somebody stay, and so does a session that an agent has open.
        """
        tasks = sum(TaskLogs(folder).prune(before) for folder in self._folders(TASK_FOLDER))
        people = [person for folder in self._folders(SESSION_FOLDER) for person in folder.iterdir() if person.is_dir()]
        return {"tasks": tasks, "sessions": sum(SessionFile(person).remove(before) for person in people)}

    def forget(self, person: Principal) -> dict[str, int]:
        """Delete the task logs and sessions of a person.

        `under_way` counts a session that an agent has open: it stays, and so do the logs of tasks that have not ended.
        """
        session = SessionFile(session_folder(self._data_dir, person))
        removed, is_open = session.remove(), session.folder.exists()
        logs = TaskLogs(tenant_folder(self._data_dir, TASK_FOLDER, person.tenant))
        tasks = logs.forget(str(person), only_ended=is_open)
        return {"tasks": tasks, "sessions": removed, "under_way": int(is_open)}

    def _folders(self, name: str) -> Iterator[Path]:
        homes = [self._data_dir, *(self._data_dir / _TENANTS).glob("*")]
        return (folder for home in homes if (folder := home / name).is_dir())


def _file_name(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E")

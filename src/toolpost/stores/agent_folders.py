"""Folders of agents' files below a data folder: one of sessions for each person, and one of tasks for each tenant."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from toolpost.contracts.principal import LOCAL_TENANT, Principal

TASK_FOLDER = "tasks"
SESSION_FOLDER = "sessions"
TENANTS = "tenants"


def tenant_folder(data_dir: Path, name: str, tenant: str) -> Path:
    """Return a tenant's folder; the local tenant's is below the data folder itself, none lies within another's."""
    return (data_dir if tenant == LOCAL_TENANT else data_dir / TENANTS / _file_name(tenant)) / name


def session_folder(data_dir: Path, person: Principal) -> Path:
    """Return the folder of a person's sessions, which others of the tenant do not read."""
    return tenant_folder(data_dir, SESSION_FOLDER, person.tenant) / _file_name(person.user)


def _file_name(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E")

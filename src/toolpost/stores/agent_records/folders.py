"""Folders of agents below a data folder: sessions and memory of each user, tasks and memory of each tenant."""

from __future__ import annotations

from pathlib import Path

from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.stores.path_segments import path_segment

TASK_FOLDER = "tasks"
SESSION_FOLDER = "sessions"
SHARED_MEMORY = "memory"
USER_MEMORY = "user_memory"
TENANTS = "tenants"


def tenant_folder(data_dir: Path, name: str, tenant: str) -> Path:
    """Return a tenant's folder; the local tenant's is in the data folder itself, and none is within another's."""
    return (data_dir if tenant == LOCAL_TENANT else data_dir / TENANTS / path_segment(tenant)) / name


def session_folder(data_dir: Path, person: Principal) -> Path:
    """Return the folder of the sessions of a user, which other users of the tenant do not read."""
    return user_folder(data_dir, SESSION_FOLDER, person)


def user_folder(data_dir: Path, name: str, person: Principal) -> Path:
    """Return the folder of a user below a folder of the tenant."""
    return tenant_folder(data_dir, name, person.tenant) / path_segment(person.user)

"""Folders of agents' files below a data folder: sessions and memory of each user, tasks and memory of each tenant."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.files.segments import path_segment

TASK_FOLDER = "tasks"
SESSION_FOLDER = "sessions"
SHARED_MEMORY = "memory"
USER_MEMORY = "user_memory"
TENANTS = "tenants"
_CUT = re.compile(r"~[0-9a-f]{64}\Z")  # ends the segment of a long name


def tenant_folder(data_dir: Path, name: str, tenant: str) -> Path:
    """Return a tenant's folder; the local tenant's is below the data folder itself, none lies within another's."""
    return (data_dir if tenant == LOCAL_TENANT else data_dir / TENANTS / path_segment(tenant)) / name


def session_folder(data_dir: Path, person: Principal) -> Path:
    """Return the folder of a person's sessions, which others of the tenant do not read."""
    return user_folder(data_dir, SESSION_FOLDER, person)


def user_folder(data_dir: Path, name: str, person: Principal) -> Path:
    """Return the folder of a user below a folder of the tenant."""
    return tenant_folder(data_dir, name, person.tenant) / path_segment(person.user)


def rename_older_folders(data_dir: Path) -> None:
    """Rename folders of sessions and tenants from a version that left capital letters and `~` in their names.

    Otherwise sessions would be lost, and would be left over when their user is forgotten.
    """
    tenants = data_dir / TENANTS
    _rename_older(tenants)
    for home in (data_dir, *tenants.glob("*")):
        _rename_older(home / SESSION_FOLDER)


def _rename_older(parent: Path) -> None:
    with suppress(OSError):  # nothing is there, or it is not ours to read
        for folder in list(parent.iterdir()):
            name = unquote(folder.name)
            is_older = quote(name, safe="").replace(".", "%2E") == folder.name and not _CUT.search(folder.name)
            renamed = parent / path_segment(name)
            if is_older and renamed != folder and not renamed.exists():
                with suppress(OSError):  # another process may be first
                    folder.rename(renamed)

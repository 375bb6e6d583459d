"""The extras of the installed package."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution, version

_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+).*;.*extra == [\"']([^\"']+)[\"']")


def installed_extras() -> dict[str, bool]:
    """Return the extras of the package by name, and whether the packages of each are installed."""
    try:
        requirements = distribution("toolpost").requires or []
    except PackageNotFoundError:  # run from a folder that is not installed
        return {}
    extras: dict[str, bool] = {}
    for requirement in requirements:
        if (match := _REQUIREMENT.match(requirement)) is not None:
            package, extra = match.groups()
            extras[extra] = extras.get(extra, True) and _is_installed(package)
    return extras


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True

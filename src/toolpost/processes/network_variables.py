"""Variables that programs need for the network: certificates, proxies, caches and package registries.

A started program inherits them by name, unless their value contains a secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from toolpost.schema.secrets import is_secret_variable

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_NPM = (
    *("cache", "cafile", "fetch_retries", "fetch_timeout", "https_proxy", "noproxy", "offline", "prefer_offline"),
    *("proxy", "registry", "strict_ssl", "userconfig"),
)
NETWORK_VARIABLES = (
    # Certificates
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    "NODE_USE_SYSTEM_CA",
    *("AWS_CA_BUNDLE", "DENO_CERT", "DENO_TLS_CA_STORE", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "NIX_SSL_CERT_FILE"),
    # Proxies, which programs read in either case
    *_PROXIES,
    *map(str.lower, _PROXIES),
    "NODE_USE_ENV_PROXY",
    # Caches
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
    # Installers: their caches, registries and certificates
    *("UV_CACHE_DIR", "UV_CONFIG_FILE", "UV_CONSTRAINT", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"),
    *("UV_HTTP_TIMEOUT", "UV_INDEX", "UV_INDEX_STRATEGY", "UV_INDEX_URL", "UV_INSECURE_HOST", "UV_NATIVE_TLS"),
    *("UV_NO_CONFIG", "UV_NO_INDEX", "UV_OFFLINE", "UV_PYTHON", "UV_PYTHON_DOWNLOADS", "UV_PYTHON_INSTALL_DIR"),
    *("UV_PYTHON_INSTALL_MIRROR", "UV_PYTHON_PREFERENCE", "UV_SYSTEM_CERTS", "UV_TOOL_DIR"),
    *("PIP_CACHE_DIR", "PIP_CERT", "PIP_CONFIG_FILE", "PIP_CONSTRAINT", "PIP_DEFAULT_TIMEOUT", "PIP_EXTRA_INDEX_URL"),
    *("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_NO_INDEX", "PIP_PROXY", "PIP_TRUSTED_HOST"),
    *(f"npm_config_{name}" for name in _NPM),
    *(f"NPM_CONFIG_{name.upper()}" for name in _NPM),
)  # fmt: skip
"""All their names; none looks like the name of a secret."""

_LOGIN = re.compile(r"(?:^|[\s,=]|//)[^/\s,]*@")  # name and password before a host, with a scheme or without
# Token prefixes of issuers, and long words of letters and digits.
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:gh[opsur]_|github_pat_|glpat-|xox[abprs]-|npm_|AKIA)(?=[A-Za-z_-]*\d)|pypi-AgE|eyJ|"
    r"sk-(?=[A-Za-z_-]*\d))[A-Za-z0-9_-]{16,}"
    r"|(?<![A-Za-z0-9])(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{32,}(?![A-Za-z0-9])"
)


class NetworkVariables(NamedTuple):
    """Variables that a started program inherits, and the names of those withheld because of their value."""

    passed_on: dict[str, str]
    withheld: tuple[str, ...]


def network_variables(environ: Mapping[str, str] | None = None) -> NetworkVariables:
    """Return the network variables of this process, or of an environment, that a started program inherits."""
    given = os.environ if environ is None else environ
    found = {name: given[name] for name in NETWORK_VARIABLES if given.get(name)}
    passed_on = {name: value for name, value in found.items() if not _holds_secret(value)}
    return NetworkVariables(passed_on, tuple(name for name in found if name not in passed_on))


def _holds_secret(value: str) -> bool:
    """Return whether a value contains a login, a query with a secret, or a word like a token; paths are safe."""
    if Path(value).is_absolute():
        return False
    if _LOGIN.search(value) or _TOKEN.search(value):
        return True
    try:
        return any(is_secret_variable(name) for word in value.split() for name, _ in parse_qsl(urlsplit(word).query))
    except ValueError:  # it cannot be parsed as a URL
        return True

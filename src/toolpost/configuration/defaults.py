"""Names of the files and folders beside `toolpost.yaml`, and defaults that need no models."""

from __future__ import annotations

FILE_NAME = "toolpost.yaml"
ENV_FILE = ".env"
LOCK_NAME = "toolpost.lock"
DATA_FOLDER = ".toolpost"  # the default of `data_dir`
DEFAULT_FOLDER = "data"  # the default of `tools.allowed_paths`
TENANTS_FOLDER = "tenants"  # contains a folder for each tenant except local, unless `tools.allowed_paths` differs
FILE_BUILTINS = "all"  # the default of a file, and of the command line without a file
GATEWAY_BUILTINS = ("artifact_tools",)  # the default of `toolpost up` and `toolpost serve`

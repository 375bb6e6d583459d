"""Names of the files and folders beside `toolpost.yaml`, and what holds without one; known without any model."""

from __future__ import annotations

FILE_NAME = "toolpost.yaml"
ENV_FILE = ".env"
LOCK_NAME = "toolpost.lock"
DATA_FOLDER = ".toolpost"  # the default of `data_dir`
DEFAULT_FOLDER = "data"  # the default of `tools.allowed_paths`
TENANTS_FOLDER = "tenants"  # where each tenant but the local one has a folder, unless `tools.allowed_paths` says where
FILE_BUILTINS = "all"  # the default of a file, and of the command line without a file
GATEWAY_BUILTINS = ("artifact_tools",)  # the default of `toolpost up` and `toolpost serve`

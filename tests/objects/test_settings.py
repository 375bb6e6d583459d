"""The setting `artifacts`: places, credentials that must not be in it, and the missing extra."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from toolpost import ConfigError, ExternalToolConfig, Settings, Toolbox
from toolpost.configuration.deployment_secrets import deployment_secrets
from toolpost.configuration.loading import load_settings
from toolpost.processes.launch import child_environment
from toolpost.stores.object_storage import BucketPlace

SECRET = "canary/secret+of+the+bucket"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("s3://bucket", BucketPlace("s3", "bucket", "")),
        ("s3://bucket/a/b/", BucketPlace("s3", "bucket", "a/b")),
        ("gs://my.bucket/prefix", BucketPlace("gs", "my.bucket", "prefix")),
        ("az://container/prefix", BucketPlace("az", "container", "prefix")),
    ],
)
def test_a_place_is_a_bucket_and_a_prefix(text: str, place: BucketPlace) -> None:
    assert BucketPlace.parse(text) == place
    assert Settings(artifacts=text).artifacts == text.rstrip("/")


@pytest.mark.parametrize(
    "text",
    [
        f"s3://AKIA123:{SECRET}@bucket/prefix",
        f"az://container/prefix?sig={SECRET}",
        f"s3://bucket/prefix?secret={SECRET}",
    ],
)
def test_credentials_in_the_setting_are_refused_and_not_repeated(tmp_path: Path, text: str) -> None:
    file = tmp_path / "toolpost.yaml"
    file.write_text(json.dumps({"artifacts": text}), encoding="utf-8")

    with pytest.raises(ConfigError, match="it contains a credential or an option") as error:
        load_settings(file)

    assert "AWS_SECRET_ACCESS_KEY" in str(error.value)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize("text", ["", "bucket", "s3:bucket", "s3://", "ftp://bucket", "s3://b u", "s3://bucket//a"])
def test_other_texts_are_no_places(text: str) -> None:
    with pytest.raises(ValueError, match="write s3://BUCKET/PREFIX"):
        Settings(artifacts=text)


@pytest.mark.parametrize("settings", [{"data_dir": None}, {"database": "memory"}])
def test_a_store_in_memory_has_no_bucket(settings: dict[str, str | None]) -> None:
    with pytest.raises(ValueError, match="needs a database that stores its data"):
        Settings.model_validate({**settings, "artifacts": "s3://bucket"})


def test_the_secrets_of_the_storage_are_those_of_the_deployment() -> None:
    environment = {"AWS_ACCESS_KEY_ID": "AKIA123", "AWS_SECRET_ACCESS_KEY": SECRET, "AZURE_CLIENT_SECRET": "other-one"}

    assert deployment_secrets(Settings(artifacts="s3://bucket"), environment) == {SECRET}
    assert deployment_secrets(Settings(), environment) == frozenset()
    with pytest.raises(ValueError, match="no tool may read"):
        Settings.model_validate({"artifacts": "s3://bucket", "tools": {"env": ["AWS_SECRET_ACCESS_KEY"]}})


@pytest.mark.req("OPS-11")
async def test_a_server_gets_no_credential_of_the_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA123")
    given = ExternalToolConfig(name="srv", transport="mcp", connection="server", env={"TOKEN": SECRET})
    settings = Settings(data_dir=tmp_path, artifacts="s3://bucket", sources=[given], builtins=["run_command"])

    async with Toolbox(settings=settings) as box:
        [refused] = box.report

    assert "a credential of `artifacts`, which no source receives" in str(refused.error)
    assert SECRET not in str(refused.error)


@pytest.mark.req("OPS-11")
def test_a_program_that_is_started_inherits_no_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AZURE_STORAGE_ACCOUNT_KEY",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
    ):
        monkeypatch.setenv(name, SECRET)

    assert SECRET not in child_environment({}).values()


@pytest.mark.programs
def test_a_missing_extra_is_reported_with_its_install_line(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['obstore'] = None; from toolpost.stores.object_storage import open_bucket; "
        "open_bucket('s3://bucket/prefix')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)

    assert "object storage needs the package obstore; run: pip install 'toolpost[objects]'" in done.stderr


@pytest.mark.programs
def test_the_package_is_imported_only_for_a_bucket(tmp_path: Path) -> None:
    program = "import sys, toolpost.stores.sqlite.store as store; print('obstore' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)

    assert done.stdout == "False\n"

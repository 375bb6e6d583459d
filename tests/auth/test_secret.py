"""Secrets do not tell themselves, and come only from places that keep them."""

import copy
import json
import logging
import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from tests.auth.keyrings import DictKeyring, keyring_of_our_own
from toolpost.auth.secret import Secret, revealed, secret_from
from toolpost.contracts.errors import ConfigError

TEXT = "hunter2-canary"


@pytest.fixture
def system_keyring() -> Iterator[DictKeyring]:
    with keyring_of_our_own() as ours:
        yield ours


@dataclass
class Holder:
    token: Secret


WAYS: dict[str, Callable[[Secret], object]] = {
    "str": str,
    "format": "{}".format,
    "padded": "{:>20}".format,
    "f-string": lambda secret: f"{secret}",
    "percent": lambda secret: "%s" % secret,  # noqa: UP031 - one of the ways
    "json": json.dumps,
    "json with str": lambda secret: json.dumps(secret, default=str),
    "json of its holder": lambda secret: json.dumps(asdict(Holder(secret))),
    "pickle": pickle.dumps,
    "pickle of its holder": lambda secret: pickle.dumps(Holder(secret)),
    "bytes": cast("Any", bytes),
    "list": lambda secret: [*cast("Any", secret)],
}


@pytest.mark.parametrize("way", WAYS)
def test_a_secret_refuses_to_be_reported(way: str) -> None:
    with pytest.raises(TypeError) as caught:
        WAYS[way](Secret(TEXT))

    assert TEXT not in str(caught.value)


def test_a_secret_shows_nothing_and_is_revealed_only_when_asked(caplog: pytest.LogCaptureFixture) -> None:
    secret = Secret(TEXT)
    logging.getLogger("toolpost.test").warning("it is %r", secret)

    assert repr(secret) == f"{secret!r}" == "Secret()"
    assert repr(Holder(secret)) == "Holder(token=Secret())"
    assert TEXT not in caplog.text
    assert not hasattr(secret, "__dict__")
    assert secret.reveal() == TEXT


def test_a_copy_of_a_secret_is_the_secret() -> None:
    secret = Secret(TEXT)

    assert copy.copy(secret) is secret
    assert copy.deepcopy({"a": [secret]})["a"][0] is secret
    assert asdict(Holder(secret)) == {"token": secret}


def test_secrets_are_equal_by_what_they_hold_and_only_to_each_other() -> None:
    assert Secret("ä\ud800") == Secret("ä\ud800")
    assert Secret(TEXT) != Secret(TEXT.upper())
    assert Secret(TEXT) != TEXT
    assert len({Secret(TEXT), Secret(TEXT)}) == 1
    assert (bool(Secret("")), bool(Secret("x"))) == (False, True)


def test_a_secret_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="create a new one"):
        setattr(Secret(TEXT), "_value", "other")  # noqa: B010 - that it fails is the point


def test_whoever_redacts_gets_the_texts() -> None:
    assert revealed([Secret("one"), Secret("two"), Secret("")]) == {"one", "two"}


@pytest.mark.req("OAUTH-32")
@pytest.mark.parametrize("reference", ["env:MY_SECRET", "${MY_SECRET}"])
def test_a_secret_comes_from_the_environment(reference: str) -> None:
    assert secret_from(reference, environ={"MY_SECRET": TEXT}) == Secret(TEXT)


@pytest.mark.parametrize(("environ", "said"), [({}, "is not set"), ({"MY_SECRET": ""}, "is empty")])
def test_a_variable_without_a_secret_is_named(environ: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=f"'MY_SECRET' {said}; put the secret into it"):
        secret_from("env:MY_SECRET", environ=environ)


@pytest.mark.req("OAUTH-32")
@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_secret_comes_from_a_file_that_only_we_can_read(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    path.write_text(f" {TEXT} \r\n")
    path.chmod(mode)

    assert secret_from(f"file:{path}").reveal() == f" {TEXT} "


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610])
def test_a_file_that_others_can_get_at_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    path.write_text(TEXT)
    path.chmod(mode)

    with pytest.raises(ConfigError, match=f"can be read by others; run: chmod 600 {path}"):
        secret_from(f"file:{path}")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(TEXT)
    path.chmod(0o600)
    os.chown(path, 12345, -1)

    with pytest.raises(ConfigError, match=f"belongs to another user; run: chown 0 {path}"):
        secret_from(f"file:{path}")


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "empty"), (b"\n", "empty"), (b"\xff\xfe canary", "not text"), (b"x" * 70_000, "larger than 65536 bytes")],
    ids=["empty", "newline", "binary", "huge"],
)
def test_a_file_that_holds_no_secret_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    path.chmod(0o600)

    with pytest.raises(ConfigError, match=said) as caught:
        secret_from(f"file:{path}")
    assert caught.value.__context__ is None


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)

    with pytest.raises(ConfigError, match="not a regular file"):
        secret_from(f"file:{tmp_path / 'pipe'}")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        secret_from(f"file:{tmp_path}")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        secret_from(f"file:{tmp_path / 'none'}")


@pytest.mark.req("OAUTH-32")
def test_a_secret_comes_from_the_keyring(system_keyring: DictKeyring) -> None:
    system_keyring.passwords["my/app", "token"] = TEXT

    assert secret_from("keyring:my/app/token").reveal() == TEXT


def test_a_keyring_without_it_says_how_to_put_it_there(system_keyring: DictKeyring) -> None:
    with pytest.raises(ConfigError, match="has no 'token' for 'app'; run: keyring set app token"):
        secret_from("keyring:app/token")
    with pytest.raises(ConfigError, match="not of the form keyring:SERVICE/NAME"):
        secret_from("keyring:token")
    system_keyring.locked = True
    with pytest.raises(ConfigError, match="cannot be read for 'app': KeyringLocked; unlock it"):
        secret_from("keyring:app/token")


@pytest.mark.req("OAUTH-32")
def test_a_secret_in_clear_is_taken_only_where_that_is_allowed() -> None:
    with pytest.raises(ConfigError, match="write env:NAME, file:PATH or keyring:SERVICE/NAME") as caught:
        secret_from(TEXT)

    assert TEXT not in str(caught.value)
    assert secret_from(TEXT, allow_plain=True) == Secret(TEXT)

"""Master keys in their places, and new ones that take over while work goes on."""

import base64
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import invalidate_caches
from pathlib import Path

import pytest

from tests.auth.keyrings import DictKeyring, keyring_of_our_own
from toolpost import Settings, Toolbox
from toolpost.auth.key_storage import FileKeys, WrappedKeys
from toolpost.auth.keys import FileCipher, KeyCipher, MasterKeys, keys_from
from toolpost.contracts.errors import ConfigError, StoreError

ROW = "journal|acme|ann|call_1||call"

# Encrypted by the first version with the key 00 01 02 ... 1f.

PLUGIN = """
class Service:
    def wrap(self, key):
        return bytes(byte ^ 0x5A for byte in key)

    def unwrap(self, wrapped):
        if Service.down:
            raise OSError("key-canary is out of reach")
        return bytes(byte ^ 0x5A for byte in wrapped)

    down = False

broken = object()
"""


@pytest.fixture
def system_keyring() -> Iterator[DictKeyring]:
    with keyring_of_our_own() as ours:
        yield ours


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed distribution that offers two key services, one of which is none."""
    site = tmp_path / "site"
    metadata = site / "fake_kms-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "fake_kms.py").write_text(PLUGIN)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-kms\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[toolpost.key_wrappers]\nfake = fake_kms:Service\nbroken = fake_kms:broken\n"
    )
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    invalidate_caches()
    yield
    sys.modules.pop("fake_kms", None)


def test_after_a_rotation_the_newest_key_encrypts_and_all_open(tmp_path: Path) -> None:
    cipher = FileCipher(tmp_path / "key")
    encrypted = [cipher.encrypt(b"one", row=ROW)]
    for word in (b"two", b"three"):
        cipher.keys.rotate()
        encrypted.append(cipher.encrypt(word, row=ROW))

    assert len({each[1:9] for each in encrypted}) == 3
    assert encrypted[-1].startswith(cipher.prefix())
    assert [FileCipher(tmp_path / "key").decrypt(each, row=ROW) for each in encrypted] == [b"one", b"two", b"three"]
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


def test_a_cipher_that_runs_encrypts_with_the_key_that_another_made(tmp_path: Path) -> None:
    running, other = FileCipher(tmp_path / "key"), FileCipher(tmp_path / "key")
    before = running.encrypt(b"before", row=ROW)
    other.keys.rotate()

    assert running.encrypt(b"mine", row=ROW).startswith(other.prefix())
    assert other.decrypt(before, row=ROW) == b"before"


def test_a_cipher_that_runs_opens_what_a_key_made_meanwhile_encrypted(tmp_path: Path) -> None:
    running, other = FileCipher(tmp_path / "key"), FileCipher(tmp_path / "key")
    running.encrypt(b"before", row=ROW)
    other.keys.rotate()

    assert running.decrypt(other.encrypt(b"theirs", row=ROW), row=ROW) == b"theirs"


def test_a_key_of_which_someone_changed_the_name_does_not_open(tmp_path: Path) -> None:
    cipher = FileCipher(tmp_path / "key")
    old = cipher.encrypt(b"secret", row=ROW)
    cipher.keys.rotate()

    with pytest.raises(StoreError, match="cannot be decrypted"):
        cipher.decrypt(cipher.prefix() + old[9:], row=ROW)


def test_what_only_a_retired_key_opens_is_gone(tmp_path: Path) -> None:
    cipher = FileCipher(tmp_path / "key")
    old = cipher.encrypt(b"old", row=ROW)
    cipher.keys.rotate()
    new = cipher.encrypt(b"new", row=ROW)

    assert cipher.keys.retire() == [old[1:9].hex()]
    assert cipher.keys.retire() == []
    assert cipher.decrypt(new, row=ROW) == b"new"
    with pytest.raises(StoreError, match="cannot be decrypted"):
        cipher.decrypt(old, row=ROW)


def test_a_key_file_that_vanishes_does_not_change_the_keys_of_those_who_run(tmp_path: Path) -> None:
    cipher = FileCipher(tmp_path / "key")
    encrypted = cipher.encrypt(b"secret", row=ROW)
    (tmp_path / "key").unlink()

    with pytest.raises(StoreError, match="cannot be decrypted"):
        cipher.decrypt(b"\x02unknown!" + encrypted[9:], row=ROW)
    assert cipher.decrypt(encrypted, row=ROW) == b"secret"
    assert cipher.encrypt(b"more", row=ROW).startswith(encrypted[:9])


@pytest.mark.programs
def test_of_rotations_at_once_none_is_lost(tmp_path: Path) -> None:
    code = f"from toolpost.auth.keys import *; [print(keys_from('file:{tmp_path / 'key'}', folder=None).rotate())]"
    children = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    threads = [threading.Thread(target=FileCipher(tmp_path / "key").keys.rotate) for _ in range(4)]
    for thread in threads:
        thread.start()
    made = {child.communicate()[0].strip() for child in children}
    for thread in threads:
        thread.join()

    ids = [key.id.hex() for key in MasterKeys(FileKeys(tmp_path / "key")).all()]
    assert made <= set(ids)
    assert len(ids) == len(set(ids)) == 9


@pytest.mark.programs
@pytest.mark.parametrize("reference", ["file", "file:KEYS", "keyring:toolpost/main", "kms:fake"])
@pytest.mark.usefixtures("plugin", "system_keyring")
def test_keys_come_from_every_place(tmp_path: Path, reference: str) -> None:
    reference = reference.replace("KEYS", str(tmp_path / "elsewhere"))
    encrypted = KeyCipher(keys_from(reference, folder=tmp_path / "data")).encrypt(b"secret", row=ROW)
    keys_from(reference, folder=tmp_path / "data").rotate()
    again = KeyCipher(keys_from(reference, folder=tmp_path / "data"))

    assert again.decrypt(encrypted, row=ROW) == b"secret"
    assert not encrypted.startswith(again.prefix())
    assert len(again.keys.all()) == 2


def test_a_key_service_is_needed_to_open_the_wrapped_keys(tmp_path: Path, plugin: None) -> None:
    keys = keys_from("kms:fake", folder=tmp_path)
    encrypted = KeyCipher(keys).encrypt(b"secret", row=ROW)
    sys.modules["fake_kms"].Service.down = True

    with pytest.raises(
        StoreError, match=r"key service did not unwrap a key of .*: OSError; check the service"
    ) as caught:
        KeyCipher(keys_from("kms:fake", folder=tmp_path)).decrypt(encrypted, row=ROW)
    assert "canary" not in str(caught.value)
    assert KeyCipher(keys).decrypt(encrypted, row=ROW) == b"secret"


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("kms:none", r"no plug-in provides the key service 'none' \(toolpost.key_wrappers: broken, fake\)"),
        ("kms:broken", "is not a key service: it needs wrap"),
        ("keyring:toolpost", "names no key; use file, file:PATH, env:NAME, keyring:SERVICE/NAME or kms:PLUG-IN"),
        ("vault", "'vault' names no key"),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused(tmp_path: Path, reference: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        keys_from(reference, folder=tmp_path)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"wrapped": ["%%"]}', b'{"wrapped": 1}', b"\xff"])
def test_damaged_wrapped_keys_are_refused(tmp_path: Path, plugin: None, content: bytes) -> None:
    path = tmp_path / "key.wrapped"
    path.write_bytes(content)
    path.chmod(0o600)

    with pytest.raises(StoreError, match=r"wrapped keys .* are damaged"):
        keys_from("kms:fake", folder=tmp_path).newest()


class Shortened:
    def wrap(self, key: bytes) -> bytes:
        return key

    def unwrap(self, wrapped: bytes) -> bytes:
        return wrapped[:16]


def test_a_key_service_that_gives_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="returned 16 bytes instead of 32"):
        MasterKeys(WrappedKeys(tmp_path / "key.wrapped", Shortened())).newest()


def test_a_damaged_keyring_entry_is_refused(tmp_path: Path, system_keyring: DictKeyring) -> None:
    system_keyring.passwords["toolpost", "main"] = "not base64!"

    with pytest.raises(StoreError, match="the key keyring:toolpost/main is damaged"):
        keys_from("keyring:toolpost/main", folder=tmp_path).newest()


@pytest.mark.programs
def test_private_files_and_folders_are_private_whatever_the_umask(tmp_path: Path) -> None:
    program = (
        "import asyncio, os, sys\n"
        "os.umask(0)\n"
        "from toolpost import Toolbox, Settings, tool\n"
        "@tool(side_effects='write')\n"
        "async def large() -> str:\n"
        "    'Return a text.'\n"
        "    return 'x' * 100_000\n"
        "async def main():\n"
        "    async with Toolbox(tools=[large], settings=Settings(data_dir=sys.argv[1])) as box:\n"
        "        await box.call('large', {}, user='acme:ann')\n"
        "asyncio.run(main())\n"
    )
    data = tmp_path / "deep" / "data"
    subprocess.run([sys.executable, "-c", program, str(data)], check=True)
    made = [data.parent, data, *data.rglob("*")]
    modes = {str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777 for path in made}
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}
    assert any("artifacts" in name for name in modes)


async def test_a_key_that_is_a_link_to_nothing_is_reported(tmp_path: Path) -> None:
    (tmp_path / "key").symlink_to(tmp_path / "gone")
    with pytest.raises(StoreError, match="which does not exist"):
        async with Toolbox(settings=Settings(data_dir=tmp_path)):
            pass


def in_base64(*keys: bytes) -> str:
    return ",".join(base64.b64encode(key).decode() for key in keys)


def test_the_keys_of_a_variable_are_read_and_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = bytes(range(32)), bytes(range(32, 64))
    monkeypatch.setenv("TP_KEY", in_base64(old))
    before = KeyCipher(keys_from("env:TP_KEY", folder=tmp_path)).encrypt(b"before", row=ROW)
    monkeypatch.setenv("TP_KEY", in_base64(old, new))
    cipher = KeyCipher(keys_from("env:TP_KEY", folder=tmp_path))
    cipher.rotate()

    assert cipher.decrypt(before, row=ROW) == b"before"
    assert not before.startswith(cipher.prefix())
    with pytest.raises(
        StoreError, match=r"'TP_KEY', which only you can change; to remove older keys, keep the last one"
    ):
        cipher.retire()
    monkeypatch.setenv("TP_KEY", base64.b64encode(old + new).decode())  # as `base64` prints a key file
    assert KeyCipher(keys_from("env:TP_KEY", folder=tmp_path)).prefix() == cipher.prefix()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "the encryption key is missing: the environment variable 'TP_KEY' is not set; put the key into it"),
        ("", "'TP_KEY' is empty"),
        ("canary-canary", "'TP_KEY' is not a key: it must be 32 bytes in base64"),
        (base64.b64encode(b"canary").decode(), "'TP_KEY' is not a key"),
        (f"{base64.b64encode(b'canary-' * 5).decode()}", "'TP_KEY' is not a key"),
    ],
)
def test_a_variable_without_a_key_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None, said: str
) -> None:
    monkeypatch.delenv("TP_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("TP_KEY", value)

    with pytest.raises((ConfigError, StoreError), match=said) as caught:
        keys_from("env:TP_KEY", folder=tmp_path).newest()
    assert not value or value not in str(caught.value)


@pytest.mark.parametrize("lost", ["deleted", "another", "elsewhere"])
async def test_a_database_does_not_open_without_its_key_and_no_other_is_made(tmp_path: Path, lost: str) -> None:
    key = tmp_path / "key"
    async with Toolbox(settings=Settings(data_dir=tmp_path)):
        pass
    right = key.read_bytes()
    if lost == "another":
        key.write_bytes(bytes(32))
    else:
        key.unlink()
    place = f"file:{tmp_path / 'other'}" if lost == "elsewhere" else "file"
    settings = Settings.model_validate({"data_dir": str(tmp_path), "accounts": {"key": place}})
    before = sorted(path.name for path in tmp_path.glob("[!t]*"))  # SQLite makes and removes files beside its own

    with pytest.raises(StoreError, match=r"encrypted with another key than that of .*Restore that key") as caught:
        async with Toolbox(settings=settings):
            pass
    assert ("which does not exist" in str(caught.value)) == (lost != "another")
    assert sorted(path.name for path in tmp_path.glob("[!t]*")) == before

    key.write_bytes(right)
    key.chmod(0o600)
    async with Toolbox(settings=Settings(data_dir=tmp_path)):
        pass


async def test_the_newest_key_alone_does_not_open_a_log_of_the_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key was added to the variable and the older one removed before `toolpost keys rotate`."""
    old, new = bytes(range(32)), bytes(range(32, 64))
    settings = Settings.model_validate({"data_dir": str(tmp_path), "accounts": {"key": "env:TP_KEY"}})

    async def open_with(*keys: bytes, rotate: bool = False) -> None:
        monkeypatch.setenv("TP_KEY", in_base64(*keys))
        async with Toolbox(settings=settings) as box:
            if rotate:
                assert (await box.store.rotate_key())["ledger"] == 1

    await open_with(old)
    await open_with(old, new)
    with pytest.raises(StoreError, match=r"encrypted with another key than that of env:TP_KEY\. Restore that key"):
        await open_with(new)
    await open_with(old, new, rotate=True)
    await open_with(new)

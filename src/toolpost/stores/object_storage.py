"""Buckets of object storage, named in the setting `artifacts`: S3, Google Cloud Storage and Azure, by obstore.

Credentials come from the environment or the role of the machine. Errors contain neither requests nor responses: those
of Azure have the signature of the credential in their URL.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from toolpost.contracts.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store

T = TypeVar("T")
# Longer than any transfer of an upload of the largest size; a call ends earlier, at its own deadline.
TRANSFER_S = 300.0
_CONNECT_S = 5
_RETRIES = 3
_RETRY_S = 20
_PLACE = re.compile(r"(s3|gs|az)://([A-Za-z0-9][A-Za-z0-9._-]{1,62})((?:/[A-Za-z0-9!_.*'()-]+)*)/?")
_EXAMPLE = "s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
_STATUS = re.compile(r"status code: ([0-9]{3})")
_CODE = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
_SECRETS = {
    "s3": ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SSE_CUSTOMER_KEY_BASE64"),
    "gs": ("GOOGLE_SERVICE_ACCOUNT_KEY",),
    "az": (
        *("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY"),
        *("AZURE_STORAGE_CLIENT_SECRET", "AZURE_CLIENT_SECRET", "AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN"),
        "AZURE_STORAGE_TOKEN",
    ),
}


class BucketPlace(NamedTuple):
    """A bucket and the prefix of the objects in it."""

    scheme: str
    bucket: str
    prefix: str

    @classmethod
    def parse(cls, text: str) -> BucketPlace:
        """Parse an address; ValueError does not repeat it, because it may contain a secret."""
        found = _PLACE.fullmatch(text)
        if found is not None:
            return cls(found[1], found[2], found[3].removeprefix("/"))
        if "@" in text or "?" in text:
            raise ValueError(
                f"it contains a credential or an option; write {_EXAMPLE}. Credentials come from the environment, such "
                f"as {_CREDENTIALS['s3']}, or from the role of the machine"
            )
        raise ValueError(f"write {_EXAMPLE}, with letters, digits and - _ . in the names; null is the data folder")

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.prefix}".rstrip("/")

    def secret_variables(self) -> tuple[str, ...]:
        """Return the names of the environment variables that contain the secrets of this kind of storage."""
        return _SECRETS[self.scheme]


class Bucket:
    """The objects below a prefix; every failure is a StoreError with the place and a remedy."""

    def __init__(self, place: BucketPlace) -> None:
        self.place = place
        self._store = _connect(place)

    async def put(self, name: str, data: bytes) -> None:
        """Upload an object in one request: a part of an upload of several parts would stay if this process ended."""
        import obstore  # noqa: PLC0415 - the extra is checked when a bucket is opened, here and below

        await self._run(lambda: obstore.put_async(self._store, name, data, use_multipart=False), f"write {name}")

    async def read(self, name: str, start: int, end: int) -> bytes:
        """Download the bytes from `start` to before `end`."""
        import obstore  # noqa: PLC0415

        found = await self._run(
            lambda: obstore.get_range_async(self._store, name, start=start, end=end), f"read {name}"
        )
        return bytes(found)

    async def delete(self, names: Sequence[str]) -> None:
        """Delete objects; one that does not exist counts as deleted."""
        import obstore  # noqa: PLC0415

        try:
            await self._run(
                lambda: obstore.delete_async(self._store, names), "delete objects", missing=FileNotFoundError
            )
        except FileNotFoundError:  # not S3; other objects may still have to be deleted
            for name in names if len(names) > 1 else ():
                await self.delete([name])

    def put_now(self, name: str, data: bytes) -> None:
        """Upload an object, and block the thread until it is stored."""
        import obstore  # noqa: PLC0415

        with self._explained(f"write {name}"):
            obstore.put(self._store, name, data, use_multipart=False)

    def stream_now(self, name: str) -> Iterator[bytes]:
        """Download an object in pieces; FileNotFoundError if it does not exist."""
        import obstore  # noqa: PLC0415

        with self._explained(f"read {name}", missing=FileNotFoundError):
            for piece in obstore.get(self._store, name).stream():
                yield bytes(piece)

    def delete_now(self, names: Sequence[str]) -> None:
        """Delete objects, and block the thread until they are deleted."""
        import obstore  # noqa: PLC0415

        try:
            with self._explained("delete objects", missing=FileNotFoundError):
                obstore.delete(self._store, names)
        except FileNotFoundError:
            for name in names if len(names) > 1 else ():
                self.delete_now([name])

    def check(self) -> None:
        """Raise StoreError if the bucket cannot be listed."""
        import obstore  # noqa: PLC0415

        with self._explained("list objects"):
            obstore.list_with_delimiter(self._store, "check")  # pyright: ignore[reportUnknownMemberType] - of Arrow

    async def _run(
        self, request: Callable[[], Awaitable[T]], action: str, *, missing: type[Exception] = StoreError
    ) -> T:
        with self._explained(action, missing=missing):
            async with asyncio.timeout(TRANSFER_S):
                return await request()

    @contextmanager
    def _explained(self, action: str, *, missing: type[Exception] = StoreError) -> Generator[None]:
        from obstore.exceptions import BaseError  # noqa: PLC0415

        try:
            yield
        except FileNotFoundError as error:
            if missing is FileNotFoundError and "NoSuchBucket" not in str(error):
                raise FileNotFoundError(str(self.place)) from None
            raise self._explain(error, action) from None
        except (BaseError, TimeoutError, ValueError) as error:
            raise self._explain(error, action) from None

    def _explain(self, error: Exception, action: str) -> StoreError:
        """Return an error without the text of the request, which may contain a credential."""
        text = str(error)
        code, status = _CODE.search(text), _STATUS.search(text)
        reason = code[1] if code is not None else "no response" if status is None else f"status {status[1]}"
        if isinstance(error, TimeoutError):
            reason = f"no response within {TRANSFER_S:.0f} s"
        return StoreError(
            f"object storage {self.place}: cannot {action} ({reason}); {self._advice(error, text, reason)}"
        )

    def _advice(self, error: Exception, text: str, reason: str) -> str:
        denied = type(error).__name__ in {"PermissionDeniedError", "UnauthenticatedError"}
        if denied or "status code: 403" in text or "status code: 401" in text:
            variables = _CREDENTIALS[self.place.scheme]
            return f"check {variables} in the environment, or the role of the machine, and what it may do"
        if reason == "NoSuchBucket":
            return "the bucket does not exist; create it, or name another one in `artifacts`"
        if isinstance(error, FileNotFoundError):
            return "the object was deleted by another program; restore it from a backup"
        return "check that the storage can be reached from this machine; `toolpost db check` tests it"


def open_bucket(place: str | None) -> Bucket | None:
    """Open the bucket of the setting `artifacts`; ConfigError if the extra is missing."""
    if place is None:
        return None
    try:
        return Bucket(BucketPlace.parse(place))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "obstore":
            raise
        raise ConfigError(
            "artifacts: object storage needs the package obstore; run: pip install 'toolpost[objects]'"
        ) from error


def _connect(place: BucketPlace) -> S3Store | GCSStore | AzureStore:
    """Return the client of a bucket, which sends its first request when it is used."""
    from obstore.exceptions import BaseError  # noqa: PLC0415
    from obstore.store import AzureStore, GCSStore, S3Store  # noqa: PLC0415

    options: dict[str, Any] = {
        "prefix": place.prefix or None,
        "client_options": {
            "timeout": timedelta(seconds=TRANSFER_S),
            "connect_timeout": timedelta(seconds=_CONNECT_S),
            # Options that are given replace those of the environment.
            "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() in {"1", "true"},
        },
        "retry_config": {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S)},
    }
    try:
        match place.scheme:
            case "s3":
                return S3Store(place.bucket, **options)
            case "gs":
                return GCSStore(place.bucket, **options)
            case _:
                return AzureStore(place.bucket, **options)
    except (BaseError, ValueError):
        raise ConfigError(
            f"artifacts: {place} cannot be opened with the credentials of the environment; "
            f"check {_CREDENTIALS[place.scheme]}"
        ) from None

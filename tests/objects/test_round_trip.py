"""Contents of artifacts in object storage: one round trip through the front door."""

from pathlib import Path

import pytest

from tests.gateway.serving import served
from tests.objects.server import ObjectStorage
from toolpost import Completed, Principal, tool

pytestmark = pytest.mark.programs

LINE = "the quick brown fox "
TEXT = LINE * 20_000


@tool(side_effects="read")
async def report() -> str:
    """Return a large text."""
    return TEXT


@pytest.mark.req("OPS-10")
async def test_a_large_result_is_an_encrypted_object_that_is_read_in_ranges_and_erased(
    tmp_path: Path, storage: ObjectStorage, prefix: str
) -> None:
    async with served(tmp_path / "data", [report], artifacts=storage.place(prefix)) as gate:
        done = await gate.box.call("report", {}, user="acme:ann")
        assert isinstance(done, Completed)
        [name] = storage.names(prefix)
        stored = bytes(storage.store().get(name).bytes())
        again = await gate.box.call("report", {}, user="acme:ann")
        names = storage.names(prefix)
        ann = await gate.key("acme:ann", "call")
        path = f"/api/v1/artifacts/{done.artifacts[0]}/content"
        whole = await gate.http.get(path, headers=ann)
        part = await gate.http.get(path, headers={**ann, "Range": "bytes=100000-100019"})
        erased = await gate.box.recovery.data.forget(Principal.parse("acme:ann"))

    assert (LINE.encode() in stored, names) == (False, [name])
    assert isinstance(again, Completed)
    assert (whole.status_code, whole.text) == (200, TEXT)
    assert (part.status_code, part.text) == (206, TEXT[100_000:100_020])
    assert part.headers["content-range"] == f"bytes 100000-100019/{len(TEXT)}"
    assert (erased["artifacts"], erased["files"], storage.names(prefix)) == (2, 1, [])
    assert not (tmp_path / "data" / "artifacts").exists()
    assert stored
    assert name.rpartition("/")[2].startswith("obj_")

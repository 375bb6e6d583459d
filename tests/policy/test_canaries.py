"""A thousand secrets go through a Toolbox, in every disguise, and are heard of nowhere."""

from pathlib import Path

import pytest

from tests.policy.canaries import DISGUISES, Watch, canary
from tests.policy.echoing import COUNTS, KINDS, fly
from toolpost.policy.redaction import Redactor
from toolpost.policy.secret_shapes import MASK

pytestmark = pytest.mark.slow

ALL = [canary(kind, number) for role, kinds in KINDS.items() for kind in kinds for number in range(COUNTS[role])]
TOLD = {
    "people": {"errors", "events", "previews", "results"},
    "keys": {"errors", "events", "previews", "results"},
    "passwords": {"errors", "events", "prompts"},
    "clients": {"errors"},
}


def test_there_are_a_thousand_in_all_the_disguises() -> None:
    assert len(set(ALL)) == 1000
    assert len({disguise(canary("password", 0)) for disguise in DISGUISES.values()}) == 26


@pytest.mark.req("OAUTH-31", "MISC-28")
@pytest.mark.parametrize("role", COUNTS)
def test_none_is_found_in_what_is_reported_and_none_in_clear_in_what_is_stored(tmp_path: Path, role: str) -> None:
    heard = fly(tmp_path, role)

    watch = Watch(heard.canaries)
    assert [place for place, told in heard.places.items() if watch.sightings("\0".join(told))] == []
    stored = {path.name: path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()}
    assert [name for name, data in stored.items() if watch.beginnings(data)] == []
    assert len(stored["toolpost.db"]) + len(stored["toolpost.db-wal"]) > 100_000
    # They did fly, and they were taken out where they would have been heard.
    assert sum(secret in heard.repeated for secret in heard.canaries) == COUNTS[role]
    assert {place for place, told in heard.places.items() if sum(MASK in one for one in told) > 90} == TOLD[role]


def test_a_redactor_that_knows_them_all_leaves_none_of_them_in_any_disguise() -> None:
    redactor = Redactor(ALL)

    told = [redactor.text("; ".join(disguise(secret) for disguise in DISGUISES.values())) for secret in ALL]

    assert Watch(ALL).sightings("\0".join(told)) == []


def test_the_watch_sees_them_in_every_disguise() -> None:
    watch = Watch(ALL)
    for disguise in DISGUISES.values():
        assert watch.sightings(f"<{disguise(ALL[0])}>") == [ALL[0]]
        for before in range(8):
            assert ALL[0] in watch.beginnings(b"-" * before + disguise(ALL[0]).encode())
    assert watch.sightings(Path(__file__).read_text()) == watch.beginnings(Path(__file__).read_bytes()) == []

"""Who lives, and who is dead."""

import os
import threading
from pathlib import Path

import pytest

from toolpost.contracts.errors import StoreError
from toolpost.stores.sqlite.liveness import Liveness


def test_two_stores_in_one_process_see_each_other_alive(tmp_path: Path) -> None:
    one, two = Liveness(tmp_path / "owners"), Liveness(tmp_path / "owners")

    assert one.owner_id != two.owner_id
    assert one.alive(two.owner_id)
    assert one.alive(one.owner_id)
    two.release()
    assert not one.alive(two.owner_id)
    one.release()


def test_one_who_was_never_there_is_dead(tmp_path: Path) -> None:
    liveness = Liveness(tmp_path / "owners")

    assert not liveness.alive("own_x")
    liveness.release()


def test_one_who_cannot_be_looked_at_counts_as_alive(tmp_path: Path) -> None:
    liveness = Liveness(tmp_path / "owners")
    (tmp_path / "owners" / "own_x.lock").mkdir()

    assert liveness.alive("own_x")
    liveness.sweep()
    assert (tmp_path / "owners" / "own_x.lock").exists()
    liveness.release()
    liveness.release()


def test_only_the_dead_are_swept_away(tmp_path: Path) -> None:
    folder = tmp_path / "owners"
    living, looking = Liveness(folder), Liveness(folder)
    for dead in ("own_a", "own_b"):
        (folder / f"{dead}.lock").touch()

    looking.sweep()

    assert {path.stem for path in folder.iterdir()} == {living.owner_id, looking.owner_id}
    assert not looking.alive("own_a")
    living.release()
    looking.release()


def test_no_one_is_swept_away_while_being_born(tmp_path: Path) -> None:
    folder = tmp_path / "owners"
    looking = Liveness(folder)
    done = threading.Event()

    def sweep() -> None:
        while not done.is_set():
            looking.sweep()

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    born = [Liveness(folder) for _ in range(200)]
    done.set()
    sweeper.join()

    assert all(looking.alive(each.owner_id) for each in born)
    for each in [*born, looking]:
        each.release()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StoreError, match=r"data folder '.*file' cannot be written: Not a directory"):
        Liveness(tmp_path / "file" / "owners")


@pytest.mark.programs
def test_a_forked_child_does_not_end_its_parent(tmp_path: Path) -> None:
    parent, looking = Liveness(tmp_path / "owners"), Liveness(tmp_path / "owners")
    child = os.fork()
    if not child:
        parent.release()
        os._exit(0)
    os.waitpid(child, 0)

    assert looking.alive(parent.owner_id)
    parent.release()
    looking.release()

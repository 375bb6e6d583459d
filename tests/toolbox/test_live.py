"""Lists that are always as of now."""

from toolpost.toolbox.live import Live


def test_one_look_at_all_of_it_makes_it_once() -> None:
    made: list[int] = []

    def make() -> list[str]:
        made.append(len(made))
        return ["a", "b", "c"]

    live = Live(make)

    assert [letter.upper() for letter in live] == ["A", "B", "C"]
    assert len(made) == 1
    assert "c" in live
    assert len(made) == 2

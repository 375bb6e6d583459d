"""What a host writes to a keeper, and reads of it; how keepers keep is shown with real processes in test_processes."""

from hypothesis import given
from hypothesis import strategies as st

from toolpost.wire.keeper import Order, unpack

# Whatever the system can hand to a process, undecodable bytes included.
TEXTS = st.binary().map(lambda raw: raw.replace(b"\0", b"").decode("utf-8", "surrogateescape"))
NAMES = TEXTS.map(lambda name: name.replace("=", "")).filter(bool)


@given(argv=st.lists(TEXTS, min_size=1).map(tuple), env=st.dictionaries(NAMES, TEXTS), cwd=TEXTS, group=TEXTS)
def test_an_order_arrives_as_it_was_given(argv: tuple[str, ...], env: dict[str, str], cwd: str, group: str) -> None:
    packed = Order("/bin/program", argv, env, cwd=cwd, group=group).pack()

    length, payload = int(packed[:10]), packed[10:]
    order = unpack(payload)

    assert length == len(payload)
    assert (order.program, order.argv, order.env) == ("/bin/program", argv, env)
    assert (order.cwd, order.group) == (cwd, group)

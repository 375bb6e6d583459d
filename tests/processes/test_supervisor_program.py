"""Requests as a host writes them and a worker reads them; test_guarantees shows with real processes what it does."""

from hypothesis import given
from hypothesis import strategies as st

from toolpost.processes.supervisor_program import SpawnRequest, unpack

# Whatever the system can hand to a process, undecodable bytes included.
TEXTS = st.binary().map(lambda raw: raw.replace(b"\0", b"").decode("utf-8", "surrogateescape"))
# Taken out of the bytes: taken out of the text, it could leave two halves that are one character.
NAMES = st.binary().map(lambda raw: raw.translate(None, b"\0=").decode("utf-8", "surrogateescape")).filter(bool)


@given(argv=st.lists(TEXTS, min_size=1).map(tuple), env=st.dictionaries(NAMES, TEXTS), cwd=TEXTS, long=st.booleans())
def test_a_request_arrives_as_it_was_made(argv: tuple[str, ...], env: dict[str, str], cwd: str, long: bool) -> None:
    packed = SpawnRequest("/bin/program", argv, env, cwd=cwd, long_running=long).pack()

    length, payload = int(packed[:10]), packed[10:]
    request = unpack(payload)

    assert length == len(payload)
    assert (request.program, request.argv, request.env) == ("/bin/program", argv, env)
    assert (request.cwd, request.long_running) == (cwd, long)

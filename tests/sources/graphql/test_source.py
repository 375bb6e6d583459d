"""A GraphQL API as a source, through the front door, against a real server."""

from collections.abc import Iterator

import pytest

from tests.sources.graphql.serving import Canned, library, rough, source, toolbox
from toolpost import Paused
from toolpost.errors import ToolAuthError, ToolValidationError

pytestmark = pytest.mark.programs


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with library() as where:
        yield where


async def test_every_query_reads_and_every_mutation_writes(address: str) -> None:
    async with toolbox(source(address)) as box:
        specs = {spec.name: spec for spec in box.registry.specs() if spec.source == "lib"}
    reads = {name for name, spec in specs.items() if spec.side_effects == "read"}
    assert reads == {f"lib.{n}" for n in ("books", "book", "author", "items", "echo", "header", "allBooks", "broken")}
    writes = {name: (spec.replay, spec.safety.destructive) for name, spec in specs.items() if name not in reads}
    assert writes == {
        "lib.addBook": ("unsafe", None),
        "lib.deleteBook": ("unsafe", True),
        "lib.books_mutation": ("unsafe", None),
    }
    assert specs["lib.books"].description == "Find books by where they stand and what they are called."
    assert [name for name, spec in specs.items() if spec.deprecated] == ["lib.allBooks"]


async def test_subscriptions_are_left_out_and_that_is_reported(address: str) -> None:
    async with toolbox(source(address)) as box:
        [told] = box.problems
    assert "1 subscription(s) were skipped (arrivals)" in told


async def test_a_query_gives_the_value_of_its_field(address: str) -> None:
    async with toolbox(source(address, options={"depth": 0})) as box:
        all_of_them = await box.call("lib.books", {})
        some = await box.call("lib.books", {"shelf": "SCIENCE", "most": 1})
        by_key = await box.call("lib.book", {"by": {"title": "Solaris"}})
        nobody = await box.call("lib.book", {"by": {"id": 77}})
    assert [book["title"] for book in all_of_them.content][:2] == ["Solaris", "Summa"]
    assert some.content == [{"id": "2", "title": "Summa", "shelf": "SCIENCE", "pages": None}]
    assert by_key.content["id"] == "1"
    assert (nobody.status, nobody.content) == ("completed", None)


async def test_objects_are_followed_down_to_the_depth_and_no_further(address: str) -> None:
    one = {"by": {"id": "1"}}
    async with toolbox(source(address, options={"depth": 0})) as box:
        flat = await box.call("lib.book", one)
    async with toolbox(source(address, options={"depth": 2, "selections": {"author": "{ name }"}})) as box:
        deep = (await box.call("lib.book", one)).content
    assert "author" not in flat.content
    assert deep["author"]["name"] == "Lem"
    assert deep["author"]["books"][0].keys() == {"id", "title", "shelf", "pages"}


async def test_members_of_a_union_are_distinguished(address: str) -> None:
    async with toolbox(source(address, options={"depth": 0})) as box:
        items = await box.call("lib.items", {})
    book, magazine = items.content
    assert (book["__typename"], book["title"]) == ("Book", "Solaris")
    assert magazine == {"__typename": "Magazine", "id": "m", "Magazine_title": None, "issue": 7}


@pytest.mark.parametrize("text", ['") { id } } #', 'a"b\\c\n$d{e}', "}}}}", "ü€😀\u2028"])
async def test_values_travel_as_variables_whatever_they_hold(address: str, text: str) -> None:
    async with toolbox(source(address)) as box:
        outcome = await box.call("lib.echo", {"text": text})
    assert outcome.content == text


async def test_null_for_an_argument_that_cannot_be_null_means_its_default(address: str) -> None:
    async with toolbox(source(address)) as box:
        outcome = await box.call("lib.echo", {"text": "a", "times": None})
        twice = await box.call("lib.echo", {"text": "a", "times": 2})
    assert (outcome.content, twice.content) == ("a", "aa")


async def test_a_mutation_takes_input_objects_that_hold_themselves(address: str) -> None:
    book = {"title": "Eden", "authorId": 1, "shelf": "FICTION", "sequel": {"title": "Fiasco", "authorId": "1"}}
    async with toolbox(source(address, options={"depth": 0})) as box:
        added = await box.call("lib.addBook", {"book": book})
        deleted = await box.call("lib.deleteBook", {"id": added.content["id"]})
        number = await box.call("lib.books_mutation", {})
    assert (added.content["title"], deleted.content) == ("Eden", True)
    assert isinstance(number.content, int)


@pytest.mark.parametrize(
    "arguments",
    [
        {"by": {}},
        {"by": {"id": "1", "title": "Solaris"}},
        {"by": {"id": None}},
        {"by": {"isbn": "1"}},
        {},
        {"by": {"id": "1"}, "other": 1},
    ],
    ids=str,
)
async def test_arguments_are_checked_before_anything_is_sent(address: str, arguments: dict) -> None:
    async with toolbox(source(address)) as box:
        outcome = await box.call("lib.book", arguments)
    assert isinstance(outcome.error, ToolValidationError)


async def test_what_deletes_waits_for_a_person_and_what_reads_does_not(address: str) -> None:
    async with toolbox(source(address), policy="standard") as box:
        read = await box.call("lib.books", {})
        deleted = await box.call("lib.deleteBook", {"id": "77"})
    assert read.status == "completed"
    assert isinstance(deleted, Paused)


async def test_errors_beside_data_are_reported_with_the_data(address: str) -> None:
    async with toolbox(source(address, options={"depth": 0})) as box:
        outcome = await box.call("lib.author", {"id": "1"})
    assert outcome.content == {"id": "1", "name": "Lem", "royalties": None}
    assert "author.royalties: not yours to see (FORBIDDEN)" in outcome.text
    assert '"name":"Lem"' in outcome.text


async def test_a_field_that_fails_is_a_failure_with_the_servers_words(address: str) -> None:
    async with toolbox(source(address, retry_policy={"max_attempts": 1})) as box:
        outcome = await box.call("lib.broken", {})
    assert outcome.error.error_code == "server_error"
    assert "query 'broken' failed: broken: the roof leaks (INTERNAL_SERVER_ERROR)" in str(outcome.error)


async def test_the_credential_and_the_operators_headers_travel(address: str) -> None:
    given = {"auth_type": "bearer", "auth_config": {"token": "tok"}, "headers": {"X-Team": "blue"}}
    async with toolbox(source(address, **given)) as box:
        outcome = await box.call("lib.header", {"name": "Authorization"})
        team = await box.call("lib.header", {"name": "X-Team"})
    assert (outcome.content, team.content) == ("Bearer tok", "blue")


async def test_nothing_is_sent_to_where_a_server_redirects(address: str) -> None:
    away = Canned(b"", 307, "text/plain", {"Location": address})
    async with rough("type Query { a: Int }", away) as server, toolbox(source(server.address)) as box:
        outcome = await box.call("lib.a", {})
    assert outcome.status == "failed"
    assert "redirects" in str(outcome.error)


async def test_a_selection_of_one_call_takes_the_place_of_the_default(address: str) -> None:
    async with toolbox(source(address)) as box:
        short = await box.call("lib.books", {"most": 1, "selection": "{ title }"})
        bare = await box.call("lib.books", {"most": 1, "selection": "title first: page(number: 3)"})
        null = await box.call("lib.books", {"most": 1, "selection": None})
        empty = await box.call("lib.books", {"most": 1, "selection": " "})
    assert short.content == [{"title": "Solaris"}]
    assert bare.content == [{"title": "Solaris", "first": "page 3"}]
    assert "author" in null.content[0]
    assert empty.content == null.content


@pytest.mark.parametrize(
    ("selection", "complaint"),
    [
        ("{ titel }", "Did you mean 'title'"),
        ("{ title", "Syntax Error"),
        ("{ }", "Syntax Error"),
        ("{ author { } }", "Syntax Error"),
        ("{ id } } mutation { deleteBook(id: 1) {", "Syntax Error"),
        ("{ id } mutation x { deleteBook(id: 1) }", "one selection in braces"),
        ("{ id } fragment F on Book { id }", "one selection in braces"),
        ("{ ...F }", "Unknown fragment 'F'"),
        ("{ page(number: $other) }", "'$other' is not defined"),
        ("{ author }", "must have a selection of subfields"),
        ("{ pages: title }", "the alias 'pages' is the name of another field"),
        ("{ " + "author { books { " * 30 + "id" + " } }" * 30 + " }", "deeper than 20"),
        ("{" * 5000, "Syntax Error"),
        ("{ page(number: " + "[" * 150 + "]" * 150 + ") }", "Int"),
        ("{ " + "id " * 400 + "}", "more than 300 fields"),
    ],
    ids=lambda text: text[:20],
)
async def test_a_selection_that_does_not_hold_is_refused_unsent(address: str, selection: str, complaint: str) -> None:
    async with toolbox(source(address)) as box:
        outcome = await box.call("lib.books", {"selection": selection})
    assert isinstance(outcome.error, ToolValidationError)
    assert outcome.error.tool_name == "lib.books"
    assert complaint in str(outcome.error)


async def test_tools_that_the_filters_leave_out_are_not_there(address: str) -> None:
    async with toolbox(source(address, tool_filter=["book.*"], tool_exclude=[".*_mutation"])) as box:
        names = {spec.name for spec in box.registry.specs() if spec.source == "lib"}
    assert names == {"lib.books", "lib.book"}


async def test_a_wrong_credential_is_reported_without_it() -> None:
    refused = Canned({"errors": [{"message": "bad token s3cret-token"}]}, 401)
    given = {"auth_type": "bearer", "auth_config": {"token": "s3cret-token"}}
    async with rough("type Query { a: Int }", refused) as server, toolbox(source(server.address, **given)) as box:
        outcome = await box.call("lib.a", {})
    assert isinstance(outcome.error, ToolAuthError)
    assert "Check the credential" in str(outcome.error)
    assert "s3cret-token" not in str(outcome.error)

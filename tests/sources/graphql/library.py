"""A library that speaks GraphQL; the first line printed is its address."""

import enum
import socket
from collections.abc import AsyncGenerator
from typing import Annotated

import strawberry
import uvicorn
from graphql import GraphQLError
from strawberry.asgi import GraphQL
from strawberry.types import Info


@strawberry.enum
class Shelf(enum.Enum):
    """Where a book stands."""

    FICTION = "fiction"
    SCIENCE = "science"


@strawberry.type
class Author:
    id: strawberry.ID
    name: str

    @strawberry.field
    def books(self) -> list["Book"]:
        return [book for book in BOOKS.values() if book.writer == self.id]

    @strawberry.field
    def royalties(self) -> int | None:
        raise GraphQLError("not yours to see", extensions={"code": "FORBIDDEN"})


@strawberry.type
class Book:
    id: strawberry.ID
    title: str
    shelf: Shelf
    pages: int | None
    writer: strawberry.Private[str]

    @strawberry.field
    def author(self) -> Author:
        return AUTHORS[self.writer]

    @strawberry.field
    def page(self, number: int) -> str:
        return f"page {number}"


@strawberry.type
class Magazine:
    id: strawberry.ID
    title: str | None
    issue: int


Item = Annotated[Book | Magazine, strawberry.union("Item")]


@strawberry.input
class NewBook:
    title: str
    author_id: strawberry.ID
    shelf: Shelf = Shelf.FICTION
    pages: int | None = None
    sequel: "NewBook | None" = None


@strawberry.input(one_of=True)
class Key:
    id: strawberry.ID | None = strawberry.UNSET
    title: str | None = strawberry.UNSET


AUTHORS = {"1": Author(id=strawberry.ID("1"), name="Lem")}
BOOKS = {
    "1": Book(id=strawberry.ID("1"), title="Solaris", shelf=Shelf.FICTION, pages=204, writer="1"),
    "2": Book(id=strawberry.ID("2"), title="Summa", shelf=Shelf.SCIENCE, pages=None, writer="1"),
}


@strawberry.type
class Query:
    @strawberry.field(description="Find books by where they stand and what they are called.")
    def books(self, shelf: Shelf | None = None, contains: str = "", most: int = 10) -> list[Book]:
        found = [book for book in BOOKS.values() if shelf in (None, book.shelf) and contains in book.title]
        return found[:most]

    @strawberry.field
    def book(self, by: Key) -> Book | None:
        wanted = [("id", by.id), ("title", by.title)]
        return next(
            (book for book in BOOKS.values() if (("id", book.id) in wanted or ("title", book.title) in wanted)), None
        )

    @strawberry.field
    def author(self, id: strawberry.ID) -> Author | None:
        return AUTHORS.get(id)

    @strawberry.field
    def items(self) -> list[Item]:
        return [BOOKS["1"], Magazine(id=strawberry.ID("m"), title=None, issue=7)]

    @strawberry.field
    def echo(self, text: str, times: int = 1) -> str:
        return text * times

    @strawberry.field
    def header(self, info: Info, name: str) -> str | None:
        return info.context["request"].headers.get(name)

    @strawberry.field(deprecation_reason="use books")
    def all_books(self) -> list[Book]:
        return list(BOOKS.values())

    @strawberry.field
    def broken(self) -> str:
        raise GraphQLError("the roof leaks", extensions={"code": "INTERNAL_SERVER_ERROR"})


@strawberry.type
class Mutation:
    @strawberry.mutation
    def add_book(self, book: NewBook) -> Book:
        key = str(len(BOOKS) + 1)
        made = Book(id=strawberry.ID(key), title=book.title, shelf=book.shelf, pages=book.pages, writer=book.author_id)
        BOOKS[key] = made
        return made

    @strawberry.mutation
    def delete_book(self, id: strawberry.ID) -> bool:
        return BOOKS.pop(id, None) is not None

    @strawberry.mutation
    def books(self) -> int:
        return len(BOOKS)


@strawberry.type
class Subscription:
    @strawberry.subscription
    async def arrivals(self) -> AsyncGenerator[Book, None]:
        yield BOOKS["1"]


schema = strawberry.Schema(Query, Mutation, Subscription)

if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/graphql", flush=True)
    app = GraphQL(schema)
    uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off")).run(sockets=[listening])

"""A gateway with tools that pause, fail and answer in every form that the console shows, and its people."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, Field

from tests.gateway.serving import OPERATOR, Served, served
from tests.parts import PartMissingError
from toolpost import Paused, ToolContext, tool
from toolpost.console.files import console_folder
from toolpost.contracts.callers import CallerScope
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import CallPreview
from toolpost.gateway.caller_keys import create_caller_key

RULES: list[dict[str, Any]] = [
    {
        "action": "ask",
        "tools": ["bank.refund"],
        "reason": "refunds are checked by two people",
        "approvals": {"answerers": ["acme:*"], "four_eyes": True},
    },
    {"action": "ask", "tools": ["bank.*", "files.*", "mail.*"], "reason": "money, files and mail need a person"},
    {"action": "deny", "tools": ["shop.close"], "reason": "the shop stays open"},
    {"action": "allow"},
]


class Line(BaseModel):
    """A line of an order."""

    product: str = Field(description="Number or name of the product")
    amount: int = Field(default=1, ge=1, le=100)


class Card(BaseModel):
    """Payment by card."""

    card_number: str


class Transfer(BaseModel):
    """Payment by bank transfer."""

    iban: str


class Desk(NamedTuple):
    """A gateway, and what its tools did: the arguments and the time of each effect."""

    gate: Served
    effects: list[tuple[str, dict[str, Any], float]]

    @property
    def url(self) -> str:
        return self.gate.url

    async def ticket(self) -> str:
        """A link that signs the operator in."""
        return str((await self.gate.http.post("/api/v1/tickets")).json()["url"])

    async def person(self, user: str, *scopes: CallerScope) -> str:
        """A key with which somebody signs in to the console."""
        _, text = await create_caller_key(
            self.gate.box, "desk", Principal.parse(user), scopes or ("call", "answer"), by=OPERATOR, person=True
        )
        return text

    async def asks(self, name: str, by: str = "acme:support-bot", **arguments: Any) -> str:
        """Let an agent call a tool that pauses; gives the ID of the pending action."""
        answer = await self.calls(name, by, **arguments)
        assert answer["pending"], answer
        return str(answer["pending"]["id"])

    async def calls(self, name: str, by: str = "acme:support-bot", **arguments: Any) -> dict[str, Any]:
        """Let an agent call a tool."""
        agent = await self.gate.key(by, "call")
        answer = await self.gate.http.post("/api/v1/calls", json={"tool": name, "arguments": arguments}, headers=agent)
        outcome: dict[str, Any] = answer.json()
        return outcome

    async def outcome(self, pending_id: str) -> dict[str, Any]:
        """What came of a call that paused, once it has ended."""
        async with asyncio.timeout(30):
            while (card := (await self.gate.http.get(f"/api/v1/pending/{pending_id}")).json())["outcome"] is None:
                await asyncio.sleep(0.01)
        outcome: dict[str, Any] = card["outcome"]
        return outcome

    def ran(self, name: str) -> list[dict[str, Any]]:
        """The arguments of each run of a tool."""
        return [arguments for run, arguments, _ in self.effects if run == name]


@asynccontextmanager
async def open_desk(folder: Path, *more: Any, **settings: Any) -> AsyncIterator[Desk]:
    """Serve the console with its tools and more of them."""
    if console_folder() is None:
        raise PartMissingError("the built console", "make console")
    effects: list[tuple[str, dict[str, Any], float]] = []
    async with served(
        folder / "data", [*_tools_with_effects(effects), *TOOLS, *more], **{"policy": RULES, **settings}
    ) as gate:
        yield Desk(gate, effects)


CHANGE = """\
--- a/rates.toml
+++ b/rates.toml
@@ -1,3 +1,3 @@
 [vat]
-standard = 19
+standard = {rate}
 reduced = 7
"""


async def _change(arguments: dict[str, Any], _context: ToolContext) -> CallPreview:
    return CallPreview(text=CHANGE.format(**arguments), data={"kind": "diff", "path": "rates.toml"})


def _tools_with_effects(effects: list[tuple[str, dict[str, Any], float]]) -> Sequence[Any]:
    def note(run: str, **arguments: Any) -> None:
        effects.append((run, arguments, time.time()))

    @tool(name="bank.transfer", side_effects="external")
    async def transfer(to: str, euro: int, password: str = "") -> dict[str, Any]:
        """Send money from the company account."""
        note("bank.transfer", to=to, euro=euro, password=password)
        return {"transferred": euro, "to": to}

    @tool(name="bank.refund", side_effects="external")
    async def refund(order: int, euro: int) -> str:
        """Refund an order."""
        note("bank.refund", order=order, euro=euro)
        return f"{euro} EUR for order {order} refunded"

    @tool(name="files.set_rate", side_effects="write", preview=_change)
    async def set_rate(rate: int) -> str:
        """Change the rate of the value added tax in rates.toml."""
        note("files.set_rate", rate=rate)
        return "written"

    @tool(name="mail.send", side_effects="external")
    async def send(to: str, subject: str, text: str) -> str:
        """Send a mail to a customer."""
        note("mail.send", to=to, subject=subject, text=text)
        return "sent"

    return transfer, refund, set_rate, send


@tool(name="shop.close", side_effects="write")
async def close() -> str:
    """Close the shop."""
    return "closed"


@tool(name="shop.order", side_effects="pure")
async def order(lines: list[Line], payment: Card | Transfer, express: bool = False) -> dict[str, Any]:
    """Calculate an order: nested, with a list and a choice."""
    paid = payment.model_dump()
    return {"lines": [line.model_dump() for line in lines], "payment": paid, "express": express}


@tool(name="shop.products", side_effects="pure")
async def products(count: int = 20) -> list[dict[str, Any]]:
    """List products, as a table."""
    return [{"id": number, "name": f"Product {number}", "price": number * 3} for number in range(count)]


@tool(name="shop.report", side_effects="pure")
async def report() -> str:
    """Write a report, as Markdown."""
    return "# Sales\n\n- **12** orders\n- [Details](https://example.com/details)\n\n![x](https://example.com/x.png)\n"


@tool(name="shop.stock", side_effects="pure")
async def stock(product: str) -> str:
    """Ask how much of a product there is; fails for an unknown one."""
    raise ValueError(f"no product {product}")


@tool(name="shop.guests", side_effects="pure")
async def guests(ctx: ToolContext) -> str:
    """Book a table for as many as a person says."""
    answer = await ctx.pause("guests", {"prompt": "How many guests come to dinner?"})
    return f"a table for {answer}"


@tool(name="shop.checkout", side_effects="external")
async def checkout(ctx: ToolContext, euro: int) -> Any:
    """Look at the products twice, then pay."""
    await asyncio.gather(ctx.call("shop.products", {"count": 2}), ctx.call("shop.products", {"count": 3}))
    paid = await ctx.call("bank.transfer", {"to": "supplier", "euro": euro})
    if isinstance(paid, Paused):
        ctx.wait_for(paid)
    return paid


TOOLS = [close, order, products, report, stock, guests, checkout]

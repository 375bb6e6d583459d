"""The tools of the demo: a small shop that keeps its orders in a file and writes down what it does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, TypedDict

from pydantic import Field

from toolpost import ToolContext, tool

ORDERS_FILE = "orders.json"
LEDGER_FILE = "ledger.txt"
_REFUSALS = 2  # how often the exchange hangs up before it answers


class Order(TypedDict):
    """One order of the shop."""

    id: int
    customer: str
    total: float


OrderId = Annotated[int, Field(ge=1, description="The number of the order")]


@tool(side_effects="read", tags=["orders"])
def find_order(order_id: OrderId, ctx: ToolContext) -> Order:
    """Look up one order."""
    for order in _orders(ctx):
        if order["id"] == order_id:
            return order
    raise LookupError(f"there is no order {order_id}")


@tool(side_effects="read", tags=["orders"])
def export_orders(ctx: ToolContext) -> list[Order]:
    """All orders in one list, which is long."""
    return _orders(ctx)


@tool(side_effects="write", destructive=True, tags=["orders"])
def delete_order(order_id: OrderId, ctx: ToolContext) -> str:
    """Delete an order for good."""
    kept = [order for order in _orders(ctx) if order["id"] != order_id]
    (_folder(ctx) / ORDERS_FILE).write_text(json.dumps(kept), encoding="utf-8")
    return f"order {order_id} is deleted"


@tool(side_effects="external", destructive=True, tags=["mail"])
def email_customer(order_id: OrderId, text: str, ctx: ToolContext) -> str:
    """Send a mail to the customer of an order."""
    _note(ctx, f"mailed {text!r}")
    return f"mail about order {order_id} sent"


@tool(side_effects="write", tags=["orders"])
async def ship_order(order_id: OrderId, ctx: ToolContext) -> str:
    """Reserve the goods, ask a person for the address, and ship."""
    _note(ctx, "began to ship")

    async def reserve() -> str:
        _note(ctx, "reserved")
        return f"parcel-{order_id}"

    parcel = await ctx.once("reserve", reserve)
    address = await ctx.pause("address_needed", {"order_id": order_id}, prompt="Where does the parcel go?")
    return f"{parcel} is on its way to {address}"


@tool(side_effects="read", tags=["money"])
def exchange_rate(currency: str, ctx: ToolContext) -> float:
    """What a euro costs; the exchange behind it hangs up on the first calls."""
    if _note(ctx, f"asked for {currency}") <= _REFUSALS:
        raise ConnectionResetError("the exchange hung up")
    return 1.08


def _folder(ctx: ToolContext) -> Path:
    return Path((ctx.allowed_paths or ["."])[0])


def _orders(ctx: ToolContext) -> list[Order]:
    orders: list[Order] = json.loads((_folder(ctx) / ORDERS_FILE).read_text(encoding="utf-8"))
    return orders


def _note(ctx: ToolContext, text: str) -> int:
    """Write a line into the ledger and return how often it is there by now."""
    ledger = _folder(ctx) / LEDGER_FILE
    with ledger.open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")
    return ledger.read_text(encoding="utf-8").splitlines().count(text)

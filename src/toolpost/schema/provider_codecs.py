"""Codecs between the arguments of a tool and those that a model provider can express."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from toolpost.schema.json_values import compact_encoder, is_array, is_object, json_type

BOXED = "value"  # the only property of the object around an optional value that may itself be null
to_json = compact_encoder(ensure_ascii=False)


class TextCodec(NamedTuple):
    """The value is JSON text in a string."""

    def decode(self, value: Any) -> Any:
        """Return the value; a text that is not JSON stays."""
        try:
            return json.loads(value) if isinstance(value, str) else value
        except (ValueError, RecursionError):
            return value

    def encode(self, value: Any) -> Any:
        """Return the text of a value."""
        return to_json(value)


class ItemsCodec(NamedTuple):
    """The items of an array are converted."""

    item: Codec

    def decode(self, value: Any) -> Any:
        """Return the array with converted items."""
        return [self.item.decode(one) for one in value] if is_array(value) else value

    def encode(self, value: Any) -> Any:
        """Return the array for the model."""
        return [self.item.encode(one) for one in value] if is_array(value) else value


class PropertyCodec(NamedTuple):
    """A property of an object: whether null means that it is omitted, and whether its value is in an object."""

    codec: Codec | None
    omitted_as_null: bool = False
    boxed: bool = False


class ObjectCodec(NamedTuple):
    """The properties of an object are converted; `rest` is the property with all undeclared ones, as JSON text."""

    members: Mapping[str, PropertyCodec]
    rest: str | None = None

    def decode(self, value: Any) -> Any:
        """Return the object with its real properties."""
        if not is_object(value):
            return value
        real: dict[str, Any] = {}
        for name, shown in value.items():
            member = self.members.get(name)
            if name == self.rest:
                rest = TextCodec().decode(shown)
                if is_object(rest):
                    real.update(rest)
                elif rest is not None:
                    real[name] = rest
            elif member is None:
                real[name] = shown
            elif shown is not None or not member.omitted_as_null:
                real[name] = _decode_member(member, shown)
        return real

    def encode(self, value: Any) -> Any:
        """Return the object for the model."""
        if not is_object(value):
            return value
        shown: dict[str, Any] = {}
        others = {name: one for name, one in value.items() if name not in self.members}
        for name, member in self.members.items():
            if name in value:
                one = value[name]
                one = one if member.codec is None else member.codec.encode(one)
                shown[name] = {BOXED: one} if member.boxed else one
            elif member.omitted_as_null:
                shown[name] = None
        if self.rest is None:
            return {**shown, **others}
        shown[self.rest] = to_json(others) if others else None
        return shown


class TypeCodec(NamedTuple):
    """The value is converted by its JSON type."""

    codecs: Mapping[str, Codec]

    def decode(self, value: Any) -> Any:
        """Return the value as its alternative converts it."""
        codec = self.codecs.get(json_type(value))
        return value if codec is None else codec.decode(value)

    def encode(self, value: Any) -> Any:
        """Return the value for the model."""
        codec = self.codecs.get(json_type(value))
        return value if codec is None else codec.encode(value)


Codec: TypeAlias = TextCodec | ItemsCodec | ObjectCodec | TypeCodec


def _decode_member(member: PropertyCodec, shown: Any) -> Any:
    if member.boxed and is_object(shown) and shown.keys() == {BOXED}:
        shown = shown[BOXED]
    return shown if member.codec is None else member.codec.decode(shown)

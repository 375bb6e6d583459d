"""Value factories, and where they are registered."""

from typing import Any


class PythonValueFactory:
    """Converts values of one class to structs and back."""

    def __init__(self, compatible_type: type) -> None:
        self.compatible_type = compatible_type

    def encode(self, value: Any) -> Any:
        raise NotImplementedError

    def decode(self, storage: Any) -> Any:
        raise NotImplementedError


REGISTERED: list[tuple[PythonValueFactory, str, bool]] = []


def register_python_value_factory(factory: PythonValueFactory, type_name: str, *, is_default: bool) -> None:
    REGISTERED.append((factory, type_name, is_default))


def default_factory(value_type: type) -> PythonValueFactory:
    """The factory of a class or of one of its parents."""
    for factory, _, is_default in REGISTERED:
        if is_default and issubclass(value_type, factory.compatible_type):
            return factory
    raise TypeError(f"no value factory is registered for {value_type}")

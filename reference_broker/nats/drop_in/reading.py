"""Typed values of a configuration, or errors with the place: what the tables of ``options`` are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from plumbline.reference_broker.nats.auth import secret_problem
from plumbline.reference_broker.nats.drop_in.language import Value, plain
from plumbline.wire.units import SECOND, read_duration, read_number

Reader = Callable[[Value], Any]
# The name of a key in the configuration -> the name of what it sets, and how it is read.
Table = Mapping[str, tuple[str, Reader]]
IGNORED = "ignored"  # what a key sets that has no effect here


class Address(Struct, frozen=True):
    """Where to listen. ``host`` of None is not given; port -1 or 0 is any free one."""

    host: str | None
    port: int


def table(*rows: tuple[str, Reader]) -> Table:
    """Rows of names and a reader. The first name is what it sets, the others are other spellings."""
    return {name: (names.split()[0], read) for names, read in rows for name in names.split()}


def kind(value: Value) -> str:
    """What it is, without what it says: it may be a password in the wrong place."""
    match value.value:
        case bool():
            return "true or false"
        case str():
            return "a string"
        case list():
            return "an array"
        case dict():
            return "a block"
        case _:
            return "a number"


def read_block(value: Value | Mapping[str, Value], known: Table, what: str = "a block") -> dict[str, Any]:
    """A block by its table. Raises ``ConfigError`` for a wrong type and for a key that is not in it."""
    fields = value.value if isinstance(value, Value) else value
    if not isinstance(fields, dict):
        assert isinstance(value, Value)
        raise value.error(f"expected {what}, not {kind(value)}")
    found: dict[str, Any] = {}
    for key, inner in fields.items():
        entry = known.get(key.lower())
        if entry is None:
            if inner.used:
                continue
            raise inner.error(f'unknown field "{key}"')
        name, read = entry
        if name == IGNORED:
            found.setdefault(IGNORED, []).append(key)
        else:
            found[name] = read(inner)
    return found


def text(value: Value) -> str:
    """A string."""
    if not isinstance(value.value, str):
        raise value.error(f"expected a string, not {kind(value)}")
    return value.value


def secret(value: Value) -> str:
    """A password or token. The error does not show it."""
    if not isinstance(value.value, str):
        raise value.error("expected a string")
    if problem := secret_problem(value.value):
        raise value.error(problem)
    return value.value


def integer(value: Value) -> int:
    """A whole number."""
    if isinstance(value.value, bool) or not isinstance(value.value, int):
        raise value.error(f"expected a number, not {kind(value)}")
    return value.value


def size(value: Value) -> int:
    """A number of bytes; nats-server also takes it as quoted text."""
    if isinstance(value.value, str):
        from plumbline.wire.units import read_size

        found = read_size(value.value)
        if found is None:
            raise value.error(f"expected a size, not {value.value!r}")
        return found
    return integer(value)


def boolean(value: Value) -> bool:
    """True or false."""
    if not isinstance(value.value, bool):
        raise value.error(f"expected true or false, not {kind(value)}")
    return value.value


def seconds(value: Value) -> float:
    """A duration such as ``"2s"``, or a number of seconds."""
    if isinstance(value.value, int | float) and not isinstance(value.value, bool):
        return float(value.value)
    found = read_duration(text(value))
    if found is None:
        raise value.error(f'invalid duration "{value.value}"')
    return found / SECOND


def duration(value: Value) -> float:
    """As ``seconds``, but a number must have its unit."""
    if not isinstance(value.value, str):
        raise value.error(f'write a duration with its unit, such as "2s", not {kind(value)}')
    return seconds(value)


def items(value: Value, read: Reader) -> tuple[Any, ...]:
    """An array, each item read."""
    if not isinstance(value.value, list):
        raise value.error(f"expected an array, not {kind(value)}")
    return tuple(read(item) for item in value.value)


def texts(value: Value) -> tuple[str, ...]:
    """One string or an array of strings."""
    return (text(value),) if isinstance(value.value, str) else items(value, text)


def address(value: Value) -> Address:
    """A port, or ``host:port`` with IPv6 in brackets."""
    if not isinstance(value.value, str):
        return Address(None, integer(value))
    host, colon, port = value.value.rpartition(":")
    negative = port.startswith("-")
    number = read_number(port.removeprefix("-"))
    if not colon or number is None or number > 65535 or (":" in host and not host.startswith("[")):
        raise value.error(f'could not parse address string "{value.value}"')
    return Address(host.strip("[]") or None, -number if negative else number)


def anything(value: Value) -> Any:
    """Of any type: what it says does not matter."""
    return plain(value)

"""Traces of Quint: the Informal Trace Format (Apalache, "ADR-015: Informal Trace Format in JSON"). Pure."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from plumbline.errors import UNDECODABLE, PlumblineError

StateT = TypeVar("StateT")


class ModelTraceError(PlumblineError):
    """What Quint wrote is no trace of the model."""


class _File(Struct):
    states: list[dict[str, Any]]


def states_of(data: bytes, kind: type[StateT]) -> list[StateT]:
    """The states of a trace, each as ``kind``: a Struct of the model's variables.

    Raises ``ModelTraceError``.
    """
    try:
        states = msgspec.json.decode(data, type=_File).states
        return [msgspec.convert({name: plain(value) for name, value in one.items()}, kind) for one in states]
    except (*UNDECODABLE, TypeError) as error:
        raise ModelTraceError(f"not a trace of the model: {error}") from None


def plain(value: Any) -> Any:
    """A value of Quint in Python's types: sets and tuples are lists, maps are dictionaries."""
    match value:
        case {"#bigint": str(digits)}:
            return int(digits)
        case {"#tup": list(members)} | {"#set": list(members)} | list(members):
            return [plain(one) for one in members]
        case {"#map": list(pairs)}:
            return {plain(key): plain(one) for key, one in pairs}
        case dict(fields):
            return {name: plain(one) for name, one in fields.items() if name != "#meta"}
    return value

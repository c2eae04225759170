"""Stores and restores the state of a flow or stream between batches of a following run."""

from __future__ import annotations

import io
import pickle
from types import MappingProxyType
from typing import Any

from plumbline.wire.amqp import SHAPES, MethodSpec


class _Pickler(pickle.Pickler):
    """Method descriptions stand once in every process: their names are enough."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, MethodSpec):
            return _shape, (value.name,)
        if isinstance(value, MappingProxyType):
            return MappingProxyType, (dict(value),)
        return NotImplemented


def _shape(name: str) -> MethodSpec:
    return SHAPES[name]


def dumped(value: Any) -> bytes:
    """``value``, with all that it refers to."""
    buffer = io.BytesIO()
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


def restored(data: bytes) -> Any:
    """What ``dumped`` was given, in a process of the same version. Only for what this run has written."""
    return pickle.loads(data)

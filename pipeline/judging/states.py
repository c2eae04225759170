"""Stores and restores the state of a flow or stream between batches of a following run.

The state is in the run's output folder, where others may be able to write, and it is a pickle, which can run
code. So it is signed with a key that only the processes of the run know, and nothing else is restored.
"""

from __future__ import annotations

import hmac
import io
import pickle
import secrets
from types import MappingProxyType
from typing import Any

from plumbline.errors import ExitCode, PlumblineError
from plumbline.wire.amqp import SHAPES, MethodSpec

_DIGEST, _DIGEST_BYTES = "sha256", 32


class StateError(PlumblineError):
    """A state that this run has not written."""

    exit_code = ExitCode.HARNESS_ERROR


def new_state_key() -> bytes:
    """A key for one run."""
    return secrets.token_bytes(_DIGEST_BYTES)


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


def dumped(value: Any, key: bytes) -> bytes:
    """``value``, with all that it refers to, signed with the run's ``key``."""
    buffer = io.BytesIO()
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    content = buffer.getvalue()
    return _signature(content, key) + content


def restored(data: bytes, key: bytes) -> Any:
    """What ``dumped`` was given. Raises ``StateError`` if it was not signed with ``key``."""
    signature, content = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if not key or not hmac.compare_digest(signature, _signature(content, key)):
        raise StateError("the state of this run was changed by another program; start the run again")
    return pickle.loads(content)


def _signature(content: bytes, key: bytes) -> bytes:
    return hmac.digest(key, content, _DIGEST)

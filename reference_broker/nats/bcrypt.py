"""Passwords and tokens that are written as bcrypt hashes. The hash itself is computed by libcrypt.

Source: docs.nats.io, "Username/Password", "Bcrypted Passwords".
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from hmac import compare_digest
from typing import Any, cast

_NAMES = ("libcrypt.so.1", "libcrypt.so.2")
_REMEMBERED = 1_000  # answers: one hash takes a tenth of a second on purpose


def is_available() -> bool:
    """Whether this machine has a libcrypt that knows bcrypt."""
    known = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"
    return matches(known, "U*U")


@lru_cache(_REMEMBERED)
def matches(hashed: str, password: str) -> bool:
    """Whether it is the hash of this password."""
    crypt = _crypt()
    if crypt is None or "\0" in password:
        return False
    found = crypt(password.encode("utf-8", "surrogatepass"), hashed.encode("utf-8", "surrogatepass"))
    return isinstance(found, bytes) and compare_digest(found, hashed.encode("utf-8", "surrogatepass"))


@lru_cache(1)
def _crypt() -> Callable[[bytes, bytes], Any] | None:
    """``crypt`` of C, which gives None for a hash it does not know."""
    for name in _NAMES:
        try:
            function = ctypes.CDLL(name).crypt
        except (OSError, AttributeError):
            continue
        function.argtypes, function.restype = (ctypes.c_char_p, ctypes.c_char_p), ctypes.c_char_p
        return cast("Callable[[bytes, bytes], Any]", function)
    return None

"""What msgspec knows of structs, built before several threads need it.

msgspec builds it when a struct is first decoded, and a thread that meets the half-built one crashes the
process. So whoever runs brokers in threads calls ``build_struct_types`` first.
"""

from __future__ import annotations

import threading
from contextlib import suppress

import msgspec
from msgspec import Struct

_lock = threading.Lock()
_built: set[type[Struct]] = set()


def build_struct_types() -> None:
    """Build it for every struct that is defined by now."""
    with _lock:
        waiting = [Struct]
        while waiting:
            kinds = waiting.pop().__subclasses__()
            waiting += kinds
            for kind in kinds:
                if kind not in _built:
                    with suppress(TypeError, NameError):  # those that cannot be decoded never are
                        msgspec.json.Decoder(kind)
                    _built.add(kind)

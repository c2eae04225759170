"""For tests of what is freed at once, and does not wait for the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_garbage_collector() -> Iterator[None]:
    """What is in a circle of references stays, while the block runs."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

"""Python's garbage collector in a program that keeps many messages."""

from __future__ import annotations

import gc

_NEW_OBJECTS = 5_000  # that lead to a look at the youngest of them; Python's own number is 700


def collect_seldom() -> None:
    """For a program that has loaded what it needs, and that frees what it drops without the collector: the
    collector leaves out what is there now, and looks less often at what comes. That is a tenth of the
    processor time of a broker that stores messages.
    """
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)

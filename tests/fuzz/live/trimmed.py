"""``python -m tests.fuzz.live.trimmed ARGUMENT...``: ``plumbline`` with these arguments. It gives all memory
that it has freed back to the system every few seconds.

So its resident memory is what it holds. Otherwise a hole below the last byte in use stays resident, and a
process of bursts grows from peak to peak.
"""

from __future__ import annotations

import ctypes
import runpy
import sys
import threading
import time

EVERY_S = 5.0


def main() -> None:
    """As ``python -m plumbline``."""
    threading.Thread(target=_trim, daemon=True).start()
    sys.argv[0] = "plumbline"
    runpy.run_module("plumbline", run_name="__main__", alter_sys=True)


def _trim() -> None:
    """Does nothing where the C library has no ``malloc_trim``, as musl. Source: malloc_trim(3)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        time.sleep(EVERY_S)  # nothing to wait for: freed memory is no event
        trim(0)


if __name__ == "__main__":
    main()

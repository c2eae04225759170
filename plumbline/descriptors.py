"""How many files and sockets this process may have open. Imports nothing of Plumbline."""

from __future__ import annotations

import contextlib

try:
    import resource

    _HAS_LIMITS = True
except ImportError:  # this platform has none
    _HAS_LIMITS = False

MANY = 1 << 20  # where there is no limit


def allow_many_descriptors() -> int:
    """As many as this user may have; returns how many that is."""
    if not _HAS_LIMITS:
        return MANY
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return descriptor_limit()


def descriptor_limit() -> int:
    """How many it may have as it is."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if _HAS_LIMITS else MANY
    return soft if 0 <= soft < MANY else MANY

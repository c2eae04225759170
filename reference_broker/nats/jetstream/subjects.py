"""Names and subjects as JetStream uses them; matching itself is ``wire.nats.subjects``."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from plumbline.wire.nats.subjects import ANY_TAIL, collide, covers, is_literal
from plumbline.wire.nats.subjects import is_valid as is_well_formed

__all__ = ["ANY_TAIL", "collide", "covers", "is_asset_name", "is_literal", "is_valid", "matcher"]

_BLANKS = b" \t\r\n\f"
_REMEMBERED = 100_000  # many subjects seen once must not hold memory for ever


def is_valid(subject: bytes) -> bool:
    """What a stream may listen on and a consumer may filter by."""
    return is_well_formed(subject) and not any(blank in subject for blank in _BLANKS)


def is_asset_name(name: str) -> bool:
    """What a stream or consumer may be called (ADR-6)."""
    return bool(name) and not any(character in " \t\r\n\f.*>\\/" for character in name)


def matcher(patterns: Iterable[bytes]) -> Callable[[bytes], bool]:
    """A fast test for "any of these patterns", which remembers what it has seen."""
    patterns_list = tuple(patterns)
    seen: dict[bytes, bool] = {}

    def test(subject: bytes) -> bool:
        known = seen.get(subject)
        if known is None:
            if len(seen) >= _REMEMBERED:
                seen.clear()
            known = seen[subject] = any(covers(pattern, subject) for pattern in patterns_list)
        return known

    return test

"""Replaces recorded names with present ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """A text that is such a name, or a table of such texts, as it is called now. ``names`` is then -> now."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, Mapping):
        return {name: renamed(held, names) for name, held in value.items()}
    return value

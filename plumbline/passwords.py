"""Passwords from the environment, so that none has to be in a command line, where every user of the machine
can read it in the list of processes.

``PLUMBLINE_PASSWORD`` is for the URL, ``PLUMBLINE_PASSWORD_AUTH`` for that of the variant ``auth``.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from msgspec import Struct

VARIABLE = "PLUMBLINE_PASSWORD"


class Passwords(Struct, frozen=True):
    """What the environment has: ``url`` for the URL, ``variants`` by the end of the variable's name."""

    url: str | None = None
    variants: dict[str, str] = {}

    @classmethod
    def taken_from(cls, environment: MutableMapping[str, str]) -> Passwords:
        """Takes the variables away: the programs that a run starts get none of them."""
        prefix = f"{VARIABLE}_"
        names = [name for name in environment if name.startswith(prefix)]
        variants = {name.removeprefix(prefix): environment.pop(name) for name in names}
        return cls(environment.pop(VARIABLE, None) or None, variants)

    def of_variant(self, name: str) -> str | None:
        """The password for the URL of a variant; ``no-headers`` is ``NO_HEADERS`` there."""
        return self.variants.get(name.upper().replace("-", "_")) or None

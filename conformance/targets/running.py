"""A target that runs, before anyone has connected to it: what whoever started it, or named it, knows."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from plumbline.conformance.targets.urls import AnyUrl
from plumbline.masking import Mask


class RunningTarget(Struct, frozen=True):
    """Where a target is and how it was started. Somebody else may have started it: then only URLs are known.

    ``variants``: name -> URL of the same server software with that configuration (``variants.py``).
    ``arguments``: those of ``plumbline verify`` that start this target again; None: there are none.
    ``level``: the protocol level of a server that reports none.
    ``has_level``: the protocol level that was asked for is the one it was started with, and reports.
    ``program``: a command that starts another server like it (``own_server.py``).
    ``keeps_store``: what such a server has stored is there when it is started again.
    ``takes_settings``: that program takes the settings of an AMQP variant (``own_server.py``).
    ``restart``: such a command of a claims file, with {port} and {store}. The target
    itself may have another configuration.
    ``fresh``: every check needs a server of its own, since this one survives no other check.
    """

    url: AnyUrl
    variants: Mapping[str, AnyUrl] = {}
    arguments: tuple[str, ...] | None = None
    level: str = ""
    has_level: bool = False
    program: tuple[str, ...] = ()
    keeps_store: bool = True
    takes_settings: bool = False
    fresh: bool = False
    restart: str = ""

    @property
    def restarts(self) -> bool:
        """Whether Plumbline can start one like it, and start that again with what it stored."""
        return bool(self.program) and self.keeps_store

    @property
    def mask(self) -> Mask:
        """Masks the secrets of all its URLs."""
        mask = self.url.mask
        for url in self.variants.values():
            mask |= url.mask
        return mask

"""Plumbline's own connection to the broker of a scenario; the client under test does not see it."""

from __future__ import annotations

import time

from plumbline.conformance.targets.target import TargetAccess, open_target
from plumbline.conformance.targets.urls import AccessRefusedError, AnyUrl
from plumbline.errors import TargetUnreachable

ANSWERS_WITHIN_S = 20.0
PATIENCE_S = 8.0  # added to every time limit: this broker is not under test


def broker_target(url: AnyUrl) -> TargetAccess:
    """A broker that runs and refuses no client: one that does not answer is kept from it by a busy machine.

    Raises ``TargetUnreachable`` or ``AccessRefusedError`` if it goes on so.
    """
    until = time.monotonic() + ANSWERS_WITHIN_S
    while True:
        try:
            access = open_target(url)
        except (TargetUnreachable, AccessRefusedError):
            if time.monotonic() > until:
                raise
        else:
            return access.with_slack(PATIENCE_S)

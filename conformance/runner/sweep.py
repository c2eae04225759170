"""The sweep at the end of a run: deletes the run's objects that are still on the target."""

from __future__ import annotations

import math
import time
from typing import Any

import msgspec
from msgspec import Struct

from plumbline.bounds import STREAM_NAMES
from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.nats.session import BUCKET_PREFIXES, NatsSession
from plumbline.conformance.outcomes import Untestable
from plumbline.conformance.runner.created_objects import CreatedObjects
from plumbline.conformance.runner.time_limit import SHORTEST_S
from plumbline.conformance.targets.target import TargetAccess
from plumbline.interrupts import TimeIsUp, ended_after

NO_TIME_LEFT = "there is no time left to delete them"


def sweep(access: TargetAccess, until: float = math.inf) -> list[str]:
    """Delete what this run left on the target (its own, by their prefix); the names.

    For what a killed worker or Ctrl-C left; checks delete what they make. Raises ``CheckEnded`` if the
    target refuses, and at the monotonic time ``until``, also while a request is not answered.
    """
    deleted = _sweep_created if access.url.protocol == "amqp" else _sweep_streams
    left_s = None if until == math.inf else max(until - time.monotonic(), SHORTEST_S)
    try:
        with ended_after(left_s):
            return deleted(access, until)
    except TimeIsUp:
        raise Untestable(NO_TIME_LEFT) from None


def _sweep_streams(access: TargetAccess, until: float) -> list[str]:
    if "jetstream" not in access.target.features or access.grants.no_jetstream:
        return []
    with NatsSession(access) as session:
        prefixes = tuple(kind + access.prefix for kind in ("", *BUCKET_PREFIXES))
        remaining = [name for name in all_stream_names(session, until) if name.startswith(prefixes)]
        for name in remaining:
            _require_time(until)
            session.stage.delete_streams([name])
    return remaining


def _sweep_created(access: TargetAccess, until: float) -> list[str]:
    """A broker lists nothing over AMQP: what the run's processes noted and did not delete."""
    created = CreatedObjects(access.shared)
    left = created.remaining()
    if left:
        with AmqpSession(access) as session:
            for kind, name in left:
                _require_time(until)
                session.stage.delete(kind, name)
                created.record_deleted(kind, name)
    return [name for _, name in left]


class _NamesPage(Struct):
    """An answer to STREAM.NAMES."""

    streams: list[str] | None = None
    total: int = 0


def all_stream_names(session: NatsSession, until: float = math.inf) -> list[str]:
    """All stream names of the account, page by page (ADR-1: ``offset``, ``limit``, ``total``).

    Raises ``CheckEnded`` if the target refuses, or goes on for ever; and at the monotonic time ``until``.
    """
    names: list[str] = []
    while True:
        _require_time(until)
        page = _page(session.stage.api("STREAM.NAMES", body={"offset": len(names)}))
        names += page.streams or []
        if not page.streams or len(names) >= page.total:
            return names
        if len(names) > STREAM_NAMES:
            raise Untestable(f"STREAM.NAMES lists more than {STREAM_NAMES} streams")


def _page(answer: dict[str, Any]) -> _NamesPage:
    try:
        return msgspec.convert(answer, _NamesPage)
    except msgspec.ValidationError as error:
        raise Untestable(f"the answer to STREAM.NAMES is not valid: {error}") from None


def _require_time(until: float) -> None:
    if time.monotonic() > until:
        raise Untestable(NO_TIME_LEFT)

"""The sweep at the end of a run: deletes the run's objects that are still on the target."""

from __future__ import annotations

from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.nats.session import BUCKET_PREFIXES, NatsSession
from plumbline.conformance.runner.created_objects import CreatedObjects
from plumbline.conformance.target import TargetAccess


def sweep(access: TargetAccess) -> list[str]:
    """Delete what this run left on the target (its own, by their prefix); the names.

    For what a killed worker or Ctrl-C left; checks delete what they make. Raises ``CheckEnded`` if the
    target refuses.
    """
    return _sweep_ledger(access) if access.url.protocol == "amqp" else _sweep_streams(access)


def _sweep_streams(access: TargetAccess) -> list[str]:
    if "jetstream" not in access.target.features:
        return []
    with NatsSession(access) as session:
        prefixes = tuple(kind + access.prefix for kind in ("", *BUCKET_PREFIXES))
        remaining = [name for name in all_stream_names(session) if name.startswith(prefixes)]
        for name in remaining:
            session.stage.delete_stream(name)
    return remaining


def _sweep_ledger(access: TargetAccess) -> list[str]:
    """A broker lists nothing over AMQP: what the run's processes noted and did not delete."""
    ledger = CreatedObjects(access.shared)
    left = ledger.remaining()
    if left:
        with AmqpSession(access) as session:
            for kind, name in left:
                session.stage.delete(kind, name)
                ledger.record_deleted(kind, name)
    return [name for _, name in left]


def all_stream_names(session: NatsSession) -> list[str]:
    """All stream names of the account, page by page (ADR-1: ``offset``, ``limit``, ``total``)."""
    names: list[str] = []
    while True:
        page = session.stage.api("STREAM.NAMES", body={"offset": len(names)})
        found = page.get("streams") or []
        names += found
        if not found or len(names) >= int(page.get("total", 0)):
            return names

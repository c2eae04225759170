"""Which session a target's checks are given: that of the protocol its URL names."""

from __future__ import annotations

from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.sessions.session import BaseSession
from plumbline.conformance.targets.target import TargetAccess

_SESSIONS: dict[str, type[BaseSession]] = {"nats": NatsSession, "amqp": AmqpSession}


def open_session(access: TargetAccess, *, variant: str | None = None) -> BaseSession:
    """A session for one execution of one check."""
    return _SESSIONS[access.url.protocol](access, variant=variant)

"""One execution of one NATS check. What sessions share: ``base_session``.

Every stream that a session made is deleted with it.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import msgspec

from plumbline.conformance.nats.connection import NatsConnection, handshake
from plumbline.conformance.nats.new_in_cluster import NewInCluster
from plumbline.conformance.nats.stage import JetStreamStage
from plumbline.conformance.outcomes import CheckEnded, ClosedInstead, Failed, Unsupported, Untestable
from plumbline.conformance.sessions.polling import POLL_INTERVAL_S
from plumbline.conformance.sessions.session import OWN_SERVER, STAGE, BaseSession, ForeignObjectError
from plumbline.conformance.targets.own_server import RESTARTS, ClaimedServer, OwnServer
from plumbline.conformance.targets.target import CONNECT_DEFAULTS, TargetAccess
from plumbline.conformance.targets.urls import NatsUrl
from plumbline.conformance.targets.variants import variants
from plumbline.wire.nats import HPub, Operation, Pub
from plumbline.wire.nats.jetstream import API_PREFIX

__all__ = ["BUCKET_PREFIXES", "ForeignObjectError", "NatsSession"]

BUCKET_PREFIXES = ("KV_", "OBJ_")  # ADR-8, ADR-20: how the streams of buckets are called
STREAM_CREATE = "STREAM.CREATE"
_CREATES_STREAM = f"{API_PREFIX}.{STREAM_CREATE}."
_PLACES_STREAM = re.compile(rf"{re.escape(API_PREFIX)}\.STREAM\.(?:CREATE|UPDATE)\.")
# To nats-server 2.15.2 bytes of a WebSocket client that it cannot parse are a read error: it closes then,
# without a flush (server/client.go, closedStateForErr and markConnAsClosed).
UNPARSED = "Unknown Protocol Operation"
UNFLUSHED = (
    "the connection was closed, and its -ERR did not come: over WebSocket nats-server drops what it has not "
    "sent to a client whose bytes it cannot parse"
)
CLEAN_UP_WITHIN_S = 2.0  # of a server that takes longer, the sweep at the end of the run deletes it
# The requests that only read may name what is not ours; every other one changes what it names.
_CHANGES = re.compile(
    rf"{re.escape(API_PREFIX)}\.(?:STREAM|CONSUMER)\.(?!(?:INFO|NAMES|LIST|MSG\.GET)\b)(?:[A-Z]+\.)+\S+"
)


def _for_jetstream(address: str) -> str:
    """What is counted apart: a server whose JetStream hangs answers who does not ask for that."""
    return f"{address}, asked for JetStream,"


@cache
def _refusing() -> frozenset[str]:
    """The variants whose checks want to be refused."""
    return frozenset(name for name, variant in variants().items() if variant.refuses)


class NatsSession(BaseSession):
    """What a NATS check is given. See ``NatsConnection`` for what a connection can show."""

    def __init__(self, target: TargetAccess, *, variant: str | None = None) -> None:
        super().__init__(target, variant=variant)
        self._streams: set[str] = set()
        self.streams_as_named: set[str] = set()  # of which a check names the storage
        self._stage: JetStreamStage | None = None
        self._is_asked_for_jetstream = False
        self.new_in_cluster = NewInCluster() if target.is_cluster else None

    # -- names -------------------------------------------------------------------------------

    def name(self, label: str) -> str:
        """``ORDERS`` -> ``PL7f3a2x1_ORDERS``: valid as stream, consumer, queue and subject token.

        The stream of a bucket has the name of the bucket in its own: ``KV_cfg`` -> ``KV_PL7f3a2x1_cfg``.
        """
        kind = next((prefix for prefix in BUCKET_PREFIXES if label.startswith(prefix)), "")
        return self._names.setdefault(label, f"{kind}{self._token}_{label.removeprefix(kind)}")

    def inbox(self, label: str = "inbox") -> str:
        """A subject with no other user; the same one for the same label."""
        return f"{self.url(self.variant).inbox_prefix}.{self._token}.{label}"

    # -- connections -------------------------------------------------------------------------

    def connect(
        self, name: str = "client", *, variant: str | None = None, handshake: bool = True, **options: Any
    ) -> NatsConnection:
        """A new connection; ``options`` override fields of CONNECT, and one that is None is left out.

        Without ``handshake`` nothing is read or sent. Raises ``Unsupported`` without such a variant.
        """
        connection = self._open(name, self.url(variant or self.variant))
        if handshake:
            self.handshake(connection, variant=variant, **options)
        return connection

    def connect_in_the_clear(self, name: str = "client") -> NatsConnection:
        """A connection without TLS to a server that has it: nothing has been read or sent. It is for what a
        server does with a client that forgets TLS; no credentials may be sent on it.

        Raises ``Unsupported`` if the target is not reached by TLS, or begins with it.
        """
        url = self.url(self.variant)
        if url.tls is None:
            raise Unsupported("the URL of this run does not begin with tls://")
        if url.begins_with_tls:
            raise Unsupported("this connection begins with TLS: nothing can be read in the clear")
        return self._open(name, msgspec.structs.replace(url, tls=None))

    def handshake(self, connection: NatsConnection, *, variant: str | None = None, **options: Any) -> None:
        """INFO, CONNECT with ``options`` over the defaults, PING, PONG; no evidence of anything yet."""
        before = self.observations
        handshake(connection, lambda: self.connect_fields(connection, variant, **options))
        self.observations = before

    def connect_fields(
        self, connection: NatsConnection, variant: str | None = None, **options: Any
    ) -> dict[str, Any]:
        """The fields of CONNECT on ``connection``, which has read INFO: defaults, the URL's credentials, then
        ``options`` (None removes)."""
        variant = variant or self.variant
        credentials = self.url(variant).credentials(connection.nonce)
        fields = {**CONNECT_DEFAULTS, **credentials, **options}
        if variant is None and not self.target.info.get("headers"):
            # A server without headers refuses who asks for no_responders.
            fields = {**fields, "headers": False, "no_responders": False, **options}
        return {name: value for name, value in fields.items() if value is not None}

    def url(self, variant: str | None) -> NatsUrl:
        if self._home is not None:
            return NatsUrl.parse(self._home_url)
        url = super().url(variant)
        assert isinstance(url, NatsUrl)
        return url

    def _open(self, name: str, url: NatsUrl, *, own: bool = False) -> NatsConnection:
        wiring = self._connection_context(url)
        if own or self._home is not None:
            wiring = msgspec.structs.replace(wiring, on_send=self._on_sent_to_own_server)
        connection = NatsConnection(name, self._open_link(name, url), wiring)
        if name != STAGE:
            replicas = self.target.dimensions.replicas if url == self.target.url else 0
            connection.rewrite = partial(self._as_deployed, replicas=replicas)
        if self.new_in_cluster is not None and url == self.target.url:
            connection.is_sent_again = self._is_sent_again
        connection.api_prefix = url.api_prefix
        self._connections.append(connection)
        return connection

    def _is_sent_again(self, connection: NatsConnection, operation: Operation) -> bool:
        """Whether a request was too early for a node of the cluster."""
        assert self.new_in_cluster is not None
        request = self.new_in_cluster.to_repeat(time.monotonic(), operation)
        if request is None:
            return False
        self.pause(POLL_INTERVAL_S)
        connection.send(request)
        return True

    def _as_deployed(self, operation: Operation, *, replicas: int) -> Operation:
        """A request for a stream, with the storage and replicas of the run's streams.

        Traces write memory there because they have to write something. It is replaced in the text, since a
        body may be wrong on purpose.
        """
        if not isinstance(operation, Pub) or not _PLACES_STREAM.match(operation.subject):
            return operation
        if operation.subject.rpartition(".")[2] in self.streams_as_named:
            return operation
        storage = self.target.storage.encode()
        place = b'"storage":"%s"' % storage
        if replicas and b'"num_replicas"' not in operation.payload:
            place += b',"num_replicas":%d' % replicas
        payload = operation.payload.replace(b'"storage":"memory"', place)
        if payload == operation.payload:
            return operation
        return Pub.make(operation.subject, payload, operation.reply)

    def _on_sent_to_own_server(self, at: float, operation: Operation) -> None:
        """Nothing there is a stranger's, and all of it vanishes with the server."""
        self.moment = at

    def _on_sent(self, at: float, operation: Operation) -> None:
        super()._on_sent(at, operation)
        if self.new_in_cluster is not None:
            self.new_in_cluster.on_sent(at, operation)
        if isinstance(operation, Pub | HPub):
            self._refuse_foreign_subject(operation.subject)
        if isinstance(operation, Pub | HPub) and operation.subject.startswith(_CREATES_STREAM):
            self._streams.add(operation.subject[len(_CREATES_STREAM) :])

    def _refuse_foreign_subject(self, subject: str) -> None:
        """Nothing on the target that is not the run's own is touched: a check that would do so is wrong."""
        if _CHANGES.fullmatch(subject) and self.target.prefix not in subject:
            raise ForeignObjectError(
                f"{subject}: this object was not created by this run; use names from the session"
            )

    # -- a server of its own -----------------------------------------------------------------

    def own_server(self, **config: Any) -> OwnServer:
        """A server like the target that no other check uses, not started yet; ``config`` goes into its
        configuration. Raises ``Unsupported`` where Plumbline does not know how to start one."""
        running = self.target.running
        if not running.restarts and (not running.restart or config):
            raise Unsupported(RESTARTS)
        return self._server_like_the_target(config)

    def _server_like_the_target(self, config: dict[str, Any] | None = None) -> OwnServer:
        running = self.target.running
        server = (
            OwnServer(running.program, config or {})
            if running.program
            else ClaimedServer(running.restart, running.url.protocol)
        )
        self._own_servers.append(server)
        return server

    def connect_to(self, server: OwnServer, name: str = "client", **options: Any) -> NatsConnection:
        """As ``connect``, to a server of its own."""
        connection = self._open(name, NatsUrl.parse(server.url), own=True)
        self.handshake(connection, **options)
        return connection

    def stage_on(self, server: OwnServer) -> JetStreamStage:
        """A stage on a server of its own, until that is restarted."""
        self.needs("jetstream")
        try:
            return JetStreamStage(self, self.connect_to(server, STAGE), OWN_SERVER)
        except Failed as error:
            raise Untestable(f"the stage connection: {error.message}", actual=error.actual) from None

    def explained(self, ended: CheckEnded) -> CheckEnded:
        """``Unsupported`` for an -ERR that WebSocket loses; the connection must have been closed, too."""
        is_lost = isinstance(ended, ClosedInstead) and UNPARSED in ended.expected
        return Unsupported(UNFLUSHED) if is_lost and self.url(self.variant).is_web else ended

    def needs(self, feature: str) -> None:
        """Raises ``Unsupported`` unless INFO claims ``feature`` (``jetstream``, ``auth_required``)."""
        if self.variant is None and feature == "jetstream" and self.target.grants.no_jetstream:
            raise Unsupported(f"this login has no JetStream: {self.target.grants.no_jetstream}")
        if self.variant is None and feature not in self.target.target.features:
            value = self.target.info.get(feature)
            raise self.lacking(feature, f"INFO does not claim {feature!r} ({feature}: {value!r})")
        if feature == "jetstream":
            self._is_asked_for_jetstream = True
            self._require_answers(_for_jetstream(self.url(self.variant).address))

    def _asked_names(self, address: str) -> Sequence[str]:
        names = super()._asked_names(address)
        return (*names, _for_jetstream(address)) if self._is_asked_for_jetstream else names

    @property
    def has_plain_settings(self) -> bool:
        """Whether the server has the configuration that Plumbline gives it, which sets no defaults."""
        return bool(self.target.running.program) or self.variant is not None or self._home is not None

    @property
    def max_payload(self) -> int:
        """Bytes of headers and payload that a message may have, as INFO says; no limit if it does not."""
        announced = self.target.info.get("max_payload")
        return announced if isinstance(announced, int) and announced > 0 else sys.maxsize

    def missing_grant(self) -> str:
        """A refused subject or a limit of the account."""
        if self._home is not None or self.variant in _refusing():
            return ""
        return self.target.grants.missing(self.wire, is_plain=self.has_plain_settings)

    # -- stage -------------------------------------------------------------------------------

    @property
    def stage(self) -> JetStreamStage:
        """JetStream requests on a connection of their own. Raises ``Unsupported`` without JetStream."""
        if self._stage is None:
            self.needs("jetstream")
            try:
                self._stage = JetStreamStage(self, self.connect(STAGE), self.stage_server)
            except Failed as error:
                raise Untestable(f"the stage connection: {error.message}", actual=error.actual) from None
        return self._stage

    def _is_server_silent(self) -> bool:
        """Whether there is no point in asking it to delete something."""
        is_silent = self._is_unanswered or (self._stage is not None and self._stage.is_silent)
        return is_silent or bool(self.unanswered.given_up(STREAM_CREATE))

    # -- end ---------------------------------------------------------------------------------

    def _clean_up(self) -> None:
        if not self._streams or self._is_server_silent():
            return  # the sweep at the end of the run asks once for all checks
        for connection in self._connections:
            if connection.name != STAGE:
                connection.close()
        try:
            self.stage.delete_streams(sorted(self._streams), CLEAN_UP_WITHIN_S)
            self._streams.clear()
        except CheckEnded:
            pass  # the run's final sweep (conformance.runner.sweep) deletes what is left, and says so

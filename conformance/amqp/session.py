"""One execution of one AMQP check. What sessions share: ``base_session``.

Every queue and exchange that a session declares is deleted with it. A broker lists nothing over AMQP, so the
names are also noted in the file of the run's created objects: the sweep at the end deletes what a killed
process left.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from plumbline.conformance.amqp.connection import AmqpConnection
from plumbline.conformance.amqp.stage import AmqpStage
from plumbline.conformance.outcomes import CheckEnded, Failed, Unsupported, Untestable
from plumbline.conformance.runner.created_objects import CreatedObjects
from plumbline.conformance.sessions.session import OWN_SERVER, STAGE, BaseSession, ForeignObjectError
from plumbline.conformance.targets.links import Link, open_link
from plumbline.conformance.targets.own_server import RESTARTS, ClaimedServer, OwnAmqpServer, OwnServer
from plumbline.conformance.targets.target import TargetAccess
from plumbline.conformance.targets.urls import AmqpUrl
from plumbline.wire.amqp import OBJECT_ARGUMENTS, SHAPES, Method, Operation, SentBy

DECLARES = {"queue.declare": "queue", "exchange.declare": "exchange"}
# These name an object of the target which the method neither changes nor takes from.
_USES = {
    ("queue.bind", "exchange"),
    ("queue.unbind", "exchange"),
    ("exchange.bind", "source"),
    ("exchange.unbind", "source"),
    ("basic.publish", "exchange"),
}
# All others do.
_TOUCHES = {
    name: [one for one in shape.arguments if one in OBJECT_ARGUMENTS and (name, one) not in _USES]
    for name, shape in SHAPES.items()
    if shape.sent_by is not SentBy.SERVER
}
RESERVED = "amq."  # the broker's own names: it refuses what it must


class AmqpSession(BaseSession):
    """What an AMQP check is given. See ``AmqpConnection`` for what a connection can show."""

    def __init__(self, target: TargetAccess, *, variant: str | None = None) -> None:
        super().__init__(target, variant=variant)
        self._made: set[tuple[str, str]] = set()  # kind and name
        self._created = CreatedObjects(target.shared)
        self._stage: AmqpStage | None = None

    def inbox(self, label: str = "inbox") -> str:
        """``$queue`` in a trace: a name with no other user."""
        return self.name(label)

    # -- connections -------------------------------------------------------------------------

    def connect(
        self, name: str = "client", *, variant: str | None = None, handshake: bool = True, **options: Any
    ) -> AmqpConnection:
        """A new connection; ``options`` as ``amqp_handshake.OPTIONS``, and ``channels="manual"``.

        Without ``handshake`` nothing is read or sent. Raises ``Unsupported`` without such a variant.
        """
        return self._connect(name, self.url(variant or self.variant), handshake=handshake, **options)

    def _connect(self, name: str, url: AmqpUrl, **options: Any) -> AmqpConnection:
        return self._connect_over(self._open_link(name, url), name, url, **options)

    def _connect_over(
        self, link: Link, name: str, url: AmqpUrl, *, handshake: bool = True, **options: Any
    ) -> AmqpConnection:
        connection = AmqpConnection(name, link, self._connection_context(url))
        self._connections.append(connection)
        if options.pop("declares_types", True):
            connection.queue_type = self._queue_type
        connection.opens_channels = handshake and options.pop("channels", "auto") == "auto"
        if handshake:
            connection.handshake(url, options)
        return connection

    def _queue_type(self) -> str:
        from plumbline.conformance.amqp.queue_types import type_to_declare

        return type_to_declare(self)

    def url(self, variant: str | None) -> AmqpUrl:
        if self._home is not None:
            return AmqpUrl.parse(self._home_url)
        if variant is not None and self.target.url_of(variant) is None:
            server = self.variant_server(variant)
            own = AmqpUrl.parse(server.url)
            return own.with_tls(server.certificates.options()) if server.certificates is not None else own
        url = super().url(variant)
        assert isinstance(url, AmqpUrl)
        return url

    def _on_sent(self, at: float, operation: Operation) -> None:
        super()._on_sent(at, operation)
        if not isinstance(operation, Method):
            return
        for argument in _TOUCHES.get(operation.method, ()):
            name = str(operation.arguments[argument])
            if name and not self._is_own_object(name) and not name.startswith(RESERVED):
                raise ForeignObjectError(
                    f"{name}: this object was not created by this run; use names from the session"
                )
        if operation.method in DECLARES:
            name = str(operation.arguments[DECLARES[operation.method]])
            # What is declared on a server of its own vanishes with that.
            if self.target.prefix in name and not operation.arguments["passive"] and not self._own_servers:
                made = (DECLARES[operation.method], name)
                self._created.record_created(*made)
                self._made.add(made)

    def _is_own_object(self, name: str) -> bool:
        """Made by this run, or named by the server, which it did for one of our connections."""
        named = (
            connection.declared for connection in self._connections if isinstance(connection, AmqpConnection)
        )
        return self.target.prefix in name or any(name in declared for declared in named)

    def needs(self, feature: str) -> None:
        """Raises ``Unsupported`` unless connection.start claims the capability, or names the product."""
        if feature not in self.target.target.features:
            raise self.lacking(feature, f"connection.start does not claim {feature!r}")

    def explained(self, ended: CheckEnded) -> CheckEnded:
        """``Unsupported`` where the login lacks a permission, or the server makes publishers wait.

        In a variant both are what the check is about.
        """
        if isinstance(ended, Unsupported) or self.variant is not None:
            return ended
        for connection in self._connections:
            if not isinstance(connection, AmqpConnection):
                continue
            if connection.missing_permission:
                return Unsupported(f"no permission: {connection.missing_permission}")
            if connection.blocked:
                return Unsupported(
                    f"the server makes publishers wait (connection.blocked: {connection.blocked})"
                )
        return ended

    def variant_server(self, name: str) -> OwnAmqpServer:
        """The broker of a variant, which this process runs.

        Raises ``Unsupported`` where it cannot, as for one whose URL was given, and ``Inconclusive``.
        """
        from plumbline.conformance.amqp.variant_server import variant_server

        if self.target.url_of(name) is not None:
            raise Unsupported(f"Plumbline did not start the broker of the variant {name!r}")
        return variant_server(self.target.running, name)

    def url_with_certificate(self, client: str) -> AmqpUrl:
        """That of the variant, for a client that shows this certificate of
        ``conformance.targets.certificates``, or none if it is empty. Raises ``Unsupported`` if Plumbline
        has not made it."""
        assert self.variant is not None
        url = self.url(self.variant)
        if url.tls is None:
            raise Unsupported(f"the URL of the variant {self.variant!r} does not begin with amqps://")
        if not client:
            return replace(url, tls=replace(url.tls, certificate=None, key=None))
        certificates = self.variant_server(self.variant).certificates
        assert certificates is not None
        return replace(url, tls=certificates.options(client))

    def connect_with_certificate(self, client: str, **options: Any) -> AmqpConnection:
        """As ``connect``, with this certificate. Raises ``AccessRefusedError`` and ``TargetUnreachable`` if
        the server ends the handshake of TLS."""
        url = self.url_with_certificate(client)
        return self._connect_over(open_link(url), client or "client", url, **options)

    # -- a server of its own -----------------------------------------------------------------

    def own_server(self) -> OwnServer:
        """A server like the target that no other check uses, not started yet. Raises ``Unsupported`` where
        Plumbline does not know how to start one."""
        running = self.target.running
        if not running.restarts and not running.restart:
            raise Unsupported(RESTARTS)
        return self._server_like_the_target()

    def _server_like_the_target(self) -> OwnServer:
        running = self.target.running
        server = (
            OwnAmqpServer(running.program, {})
            if running.program
            else ClaimedServer(running.restart, running.url.protocol)
        )
        self._own_servers.append(server)
        return server

    def connect_to(self, server: OwnServer, name: str = "client", **options: Any) -> AmqpConnection:
        """As ``connect``, to a server of its own."""
        return self._connect(name, AmqpUrl.parse(server.url), **options)

    def stage_on(self, server: OwnServer) -> AmqpStage:
        """A stage on a server of its own, until that is restarted."""
        return AmqpStage(self, self.connect_to(server, STAGE), OWN_SERVER)

    # -- stage -------------------------------------------------------------------------------

    @property
    def stage(self) -> AmqpStage:
        """Declarations, publishes and looks on a connection of their own."""
        if self._stage is None:
            try:
                self._stage = AmqpStage(self, self.connect(STAGE), self.stage_server)
            except Failed as error:
                raise Untestable(f"the stage connection: {error.message}", actual=error.actual) from None
        return self._stage

    def _is_server_silent(self) -> bool:
        """Whether there is no point in asking it to delete something."""
        is_silent = self._is_unanswered or (self._stage is not None and self._stage.is_silent)
        return is_silent or any(self.unanswered.given_up(method) for method in DECLARES)

    # -- end ---------------------------------------------------------------------------------

    def _clean_up(self) -> None:
        if not self._made or self._is_server_silent():
            return  # the sweep at the end of the run asks once for all checks
        for connection in self._connections:
            if connection.name != STAGE:
                connection.close()
        try:
            made = sorted(self._made)
            self.stage.delete_all(made)
            for kind, name in made:
                self._created.record_deleted(kind, name)
            self._made.clear()
        except CheckEnded:
            pass  # the run's final sweep (conformance.runner.sweep) deletes what is left, and says so

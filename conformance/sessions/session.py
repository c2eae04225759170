"""The session of a check, for every protocol: its names, its connections and its traffic.

One execution of one check is one session. It cleans up after itself: connections are closed and every object
that it made on the target is deleted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from plumbline.conformance.outcomes import (
    CheckEnded,
    Failed,
    Inconclusive,
    NotClaimed,
    Unanswered,
    Unsupported,
)
from plumbline.conformance.sessions.connection import BaseConnection, ConnectionContext
from plumbline.conformance.sessions.journal import Journal
from plumbline.conformance.sessions.pump import Pump
from plumbline.conformance.sessions.received import Received
from plumbline.conformance.targets.links import Link, open_link
from plumbline.conformance.targets.own_server import OwnServer
from plumbline.conformance.targets.target import TargetAccess
from plumbline.conformance.targets.unanswered import UnansweredApis, UnansweringServers
from plumbline.conformance.targets.urls import AccessRefusedError, AnyUrl
from plumbline.errors import TargetUnreachable
from plumbline.verdicts import WireLine

STAGE = "stage"
DEATH_S = 0.05
OWN_SERVER = "a server of its own"  # where a stage may be, beside the target


class ForeignObjectError(Exception):
    """A check is about to change an object on the target that may be somebody else's."""


class BaseSession:
    """What sessions of every protocol share."""

    def __init__(self, target: TargetAccess, *, variant: str | None = None) -> None:
        self.target = target
        self.variant = variant
        self.observations = 0
        self.moment = time.monotonic()  # of the last operation sent: trace windows are measured from it
        self._journal = Journal(target.mask)
        self.unanswered = UnansweredApis(target.shared)
        self._unanswering = UnansweringServers(target.shared)
        self._addresses: set[str] = set()  # of servers that were asked
        self._is_unanswered = False  # one of them has not answered
        self._received = Received()
        self._pump = Pump()
        self._token = target.next_token()
        self._connections: list[BaseConnection] = []
        self._names: dict[str, str] = {}
        self._stage: Any = None
        self._own_servers: list[OwnServer] = []
        self._home: OwnServer | None = None  # where every connection goes, if not to the target

    # -- what a protocol adds ----------------------------------------------------------------

    def name(self, label: str) -> str:
        """``ORDERS`` -> ``PL7f3a2x1_ORDERS``: what an object of the check is called on the target."""
        return self._names.setdefault(label, f"{self._token}_{label}")

    def inbox(self, label: str = "inbox") -> str:
        """What ``$inbox`` means in a trace: a name with no other user, the same one for the same label."""
        raise NotImplementedError

    def connect(
        self, name: str = "client", *, variant: str | None = None, handshake: bool = True, **options: Any
    ) -> BaseConnection:
        """A new connection. Without ``handshake`` nothing is read or sent. Raises ``Unsupported``."""
        raise NotImplementedError

    @property
    def stage(self) -> Any:
        """Means to set the stage, on a connection of their own. Raises ``Unsupported``, ``Untestable``."""
        raise NotImplementedError

    @property
    def stage_server(self) -> str:
        """Which server the stage is on; empty for the target itself."""
        return OWN_SERVER if self._home is not None else self.variant or ""

    def missing_grant(self) -> str:
        """What the login of this run was seen to lack, in a sentence; empty if nothing."""
        return ""

    def _on_sent(self, at: float, operation: Any) -> None:
        """Called for every operation that is sent."""
        self.moment = at

    def _clean_up(self) -> None:
        """Delete what the check made on the target, as far as it lets us."""

    def explained(self, ended: CheckEnded) -> CheckEnded:
        """How the check ended, as the target explains it: ``Unsupported`` for what it does not grant."""
        return ended

    # -- connections -------------------------------------------------------------------------

    def url(self, variant: str | None) -> AnyUrl:
        """Where ``variant`` listens. Raises ``Unsupported`` if the run names no such server."""
        url = self.target.url_of(variant)
        if url is None:
            raise Unsupported(
                f"this run has no server with the configuration {variant!r} "
                f"(--variant {variant}=URL, or --server PROGRAM)"
            )
        return url

    def _open_link(self, name: str, url: AnyUrl) -> Link:
        """Raises ``Inconclusive`` if nothing answers, or TLS fails."""
        self._require_answers(url.address)
        self._addresses.add(url.address)
        try:
            return open_link(url)
        except OSError as error:
            raise Inconclusive(f"{name}: {url.address} cannot be reached ({error})") from None
        except (TargetUnreachable, AccessRefusedError) as error:
            raise Inconclusive(f"{name}: {error}") from None

    def _require_answers(self, server: str) -> None:
        """Raises ``Inconclusive`` if the run has given it up."""
        if reason := self._unanswering.given_up(server):
            self._is_unanswered = True
            raise Inconclusive(reason)

    def _asked_names(self, address: str) -> Sequence[str]:
        """How ``UnansweringServers`` calls this server, for what was asked of it; the most exact one last."""
        return (address,)

    def record_answers(self) -> None:
        """The servers that this check asked have answered it."""
        for address in self._addresses:
            for name in self._asked_names(address):
                self._unanswering.record_answer(name)

    def record_unanswered(self, ended: Unanswered, *, decides: bool) -> None:
        """One of them has not. ``decides``: the check ran alone."""
        name = self._asked_names(ended.address)[-1]
        self._unanswering.record_silence(name, ended.request, decides=decides)

    def _connection_context(self, url: AnyUrl) -> ConnectionContext:
        return ConnectionContext(
            address=url.address,
            pump=self._pump,
            journal=self._journal,
            received=self._received,
            slack_s=self.target.slack_s,
            is_alive=lambda: self.target.is_alive(url),
            on_send=self._on_sent,
            on_evidence=self.count_observation,
        )

    # -- a server of its own -----------------------------------------------------------------

    def own_server(self) -> OwnServer:
        """A server like the target that no other check uses, not started yet. Raises ``Unsupported`` where
        Plumbline does not know how to start one."""
        raise NotImplementedError

    def use_own_server(self) -> None:
        """From now on every connection, the stage's too, is one to a server of its own, which is started.

        Raises ``Unsupported``, and ``Inconclusive`` if it does not come up."""
        self._home = self.own_server()
        self._home.start()

    def use_fresh_server(self) -> None:
        """The same, of a target that survives no other check. It may lose what it stored when it ends.

        It is started when it is first connected to: many checks need none, as the target does not claim what
        they need."""
        self._home = self._server_like_the_target()

    def _server_like_the_target(self) -> OwnServer:
        """Not started yet; only where Plumbline knows how to start one."""
        raise NotImplementedError

    @property
    def _home_url(self) -> str:
        """Where that server listens."""
        assert self._home is not None
        return self._home.url or self._home.start()

    def server_exit_output(self, within: float = DEATH_S) -> str:
        """What that server printed last if it has ended; empty if it lives, or there is none.

        A process that dies closes its connections some time before it has ended: so long it is waited for.
        """
        return self._home.exit_output(within) if self._home is not None else ""

    def restart(self, *, killed: bool) -> None:
        """End that server, in order or by kill -9, and start it on what it has stored. Every connection ends
        before it does. Raises ``Inconclusive`` if it does not come up."""
        assert self._home is not None
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._stage = None
        if killed:
            self._home.kill()
        else:
            self._home.stop()
        self._home.start()

    # -- evidence ----------------------------------------------------------------------------

    @property
    def wire(self) -> Sequence[WireLine]:
        """Everything exchanged so far, in the order of time, as far as the journal keeps it."""
        return self._journal.lines

    @property
    def journal(self) -> Journal:
        return self._journal

    def count_observation(self) -> None:
        """Count one piece of evidence: a check that has none fails."""
        self.observations += 1

    def pause(self, seconds: float) -> None:
        """Let time pass on the wire, still reading and answering PING. For what the protocol itself times
        (``ack_wait``); where an event can be awaited, await it."""
        self._pump.run(lambda: False, time.monotonic() + seconds)

    def require(self, condition: object, message: str, *, expected: str, actual: str) -> None:
        """Evidence that is not an arrival: ``condition`` must hold. Raises ``Failed``."""
        if not condition:
            raise Failed(message, expected=expected, actual=actual)
        self.count_observation()

    def lacking(self, option: str, message: str) -> Unsupported:
        """What to raise if the target does not announce an option: ``NotClaimed`` if it is not claimed."""
        claims, protocol = self.target.claims, self.target.url.protocol
        if claims is None or claims.claims_option(option, protocol):
            return Unsupported(message)
        return NotClaimed(message)

    def needs(self, feature: str) -> None:
        """Raises ``Unsupported`` unless the target says that it has ``feature``."""
        raise NotImplementedError

    # -- end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Delete what was made, close every connection; servers of its own end last.

        Idempotent; a target that is gone is no error."""
        self._journal.paused = True
        try:
            self._clean_up()
        finally:
            try:
                self._disconnect()
            finally:
                self._end_own_servers()

    def _disconnect(self) -> None:
        for connection in self._connections:
            connection.close()
            connection.forget()
        self._connections.clear()
        self._pump.close()

    def _end_own_servers(self) -> None:
        for server in self._own_servers:
            server.close()
        self._own_servers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_unanswered |= isinstance(error, Unanswered)
        self.close()

"""Plays a trace over the connections of a session, step by step.

Raises the outcomes of ``conformance.outcomes``, each with the line of the trace it happened at. A
connection is opened when a line first uses it; at the end nothing may have come that no line expected.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from plumbline.conformance.outcomes import CheckEnded, Failed
from plumbline.conformance.sessions.connection import Arrival, BaseConnection
from plumbline.conformance.sessions.connection import ConnectionClosed as PeerClosed
from plumbline.conformance.sessions.session import BaseSession
from plumbline.conformance.trace.language import (
    AnyOrder,
    AwaitState,
    CloseConnection,
    ConnectionOptions,
    Expect,
    ExpectClosed,
    ExpectSilence,
    ExpectState,
    GivenServer,
    Prepare,
    Restart,
    Send,
    SendBytes,
    Step,
    TimeWindow,
    Trace,
)
from plumbline.conformance.trace.matching import assign, closest
from plumbline.conformance.trace.names import Names
from plumbline.conformance.trace.template import NotANumberError, TraceScope, as_bytes, fill


def play(trace: Trace, session: BaseSession) -> None:
    """Play the whole trace. Raises a ``CheckEnded`` if it does not end as written."""
    _TracePlayer(trace, session).play()


class _TracePlayer:
    def __init__(self, trace: Trace, session: BaseSession) -> None:
        self._trace = trace
        self._session = session
        self._scope = TraceScope(Names(trace.labels, session.name, session.inbox), {})
        self._connections: dict[str, BaseConnection] = {}
        self._ended: set[str] = set()  # connections that a line has seen closed

    def play(self) -> None:
        for feature in self._trace.needs:
            self._session.needs(feature)
        for step in self._trace.steps:
            with self._locate_errors(step.line):
                self._step(step)
        with self._locate_errors(self._trace.steps[-1].line):
            self._expect_no_more()

    @contextlib.contextmanager
    def _locate_errors(self, line: int) -> Iterator[None]:
        """Give what ends the check its place in the trace."""
        where = f"{self._trace.path}:{line}"
        try:
            yield
        except CheckEnded as error:
            error.where = error.where or where
            raise
        except NotANumberError as error:
            raise Failed(str(error), expected="a number", where=where) from None

    def _step(self, step: Step) -> None:
        match step:
            case Send():
                self._connection(step.connection).send(step.outgoing.operation(self._scope))
            case SendBytes():
                self._connection(step.connection).send_bytes(as_bytes(fill(step.template, self._scope)))
            case Expect():
                self._expect(step)
            case ExpectSilence():
                self._connection(step.connection).expect_silence(step.for_s)
            case ExpectClosed():
                self._closed(step)
            case AnyOrder():
                self._group(step)
            case Prepare():
                step.prerequisite.set(self._session, self._scope)
            case GivenServer():
                self._session.use_own_server()
            case AwaitState():
                step.state.wait(self._session, self._scope, step.within)
            case ExpectState():
                step.state.expect(self._session, self._scope, step.window)
            case CloseConnection():
                connection = self._connection(step.connection)
                if step.abruptly:
                    connection.abort()
                connection.close()
                del self._connections[step.connection]
            case Restart():
                self._expect_no_more()
                self._connections.clear()
                self._ended.clear()
                self._session.restart(killed=step.killed)

    # -- connections -------------------------------------------------------------------------

    def _connection(self, name: str) -> BaseConnection:
        connection = self._connections.get(name)
        if connection is None:
            options = self._trace.connections.get(name, ConnectionOptions())
            moment = self._session.moment
            connection = self._session.connect(
                name,
                variant=options.variant or self._trace.variant,
                handshake=options.handshake,
                **options.fields,
            )
            connection.answers_pings = options.answers_pings
            self._connections[name] = connection
            self._session.moment = moment  # the handshake is no line of the trace
        return connection

    def _expect_no_more(self) -> None:
        for name, connection in self._connections.items():
            if name in self._ended:
                continue
            for operation in self._expect_no_more_on(name, connection):
                connection.mark_offending(operation)
                raise Failed(
                    f"{name}: an operation was received that no line expects",
                    expected="nothing more",
                    actual=str(operation),
                )

    def _expect_no_more_on(self, name: str, connection: BaseConnection) -> Iterator[Any]:
        if self._trace.connections.get(name, ConnectionOptions()).handshake:
            yield from connection.flush()
        try:
            while (arrival := connection.poll(time.monotonic())) is not None:
                yield arrival.operation
        except PeerClosed:
            if not connection.may_end:
                connection.disconnected_outcome("an open connection: no line expects it closed")

    # -- expectations ------------------------------------------------------------------------

    def _expect(self, step: Expect) -> None:
        connection = self._connection(step.connection)
        expected = step.pattern.show(self._scope)
        trial = self._scope.fork()

        def judge(operation: Any) -> None:
            if differences := step.pattern.differences(operation, trial):
                connection.mark_offending(operation)
                raise Failed(
                    f"{step.connection}: " + "; ".join(map(str, differences)),
                    expected=expected,
                    actual=str(operation),
                )

        pattern = step.pattern
        arrival = self._arrival(
            connection, step.window, expected, pattern.explicit_kinds, pattern.stream, judge
        )
        self._check_not_early(connection, step.window, expected, arrival)
        self._scope.captures.update(trial.captures)
        self._session.count_observation()

    def _arrival(
        self,
        connection: BaseConnection,
        window: TimeWindow,
        expected: str,
        explicit_kinds: tuple[type[Any], ...],
        stream: int | None,
        judge: Callable[[Any], None],
    ) -> Arrival:
        skip = tuple(kind for kind in connection.unsolicited if kind not in explicit_kinds)
        since = self._session.moment if window.since_send else None
        return connection.arrival(window.within, expected, skip, since=since, stream=stream, judge=judge)

    def _check_not_early(
        self, connection: BaseConnection, window: TimeWindow, expected: str, arrival: Arrival
    ) -> None:
        elapsed_s = arrival.at - self._session.moment
        if elapsed_s < window.after:
            connection.mark_offending(arrival.operation)
            raise Failed(
                f"{connection.name}: came {elapsed_s:.3f} s after the last line sent, too early",
                expected=f"{expected} {window}",
                actual=f"{arrival.operation} after {elapsed_s:.3f} s",
            )

    def _closed(self, step: ExpectClosed) -> None:
        connection = self._connection(step.connection)
        elapsed_s = time.monotonic() - self._session.moment if step.window.since_send else 0.0
        connection.expect_closed(max(step.window.within - elapsed_s, 0.0))
        self._ended.add(step.connection)

    def _group(self, step: AnyOrder) -> None:
        """All that the group expects, in whatever order it comes on each connection."""
        arrived: list[tuple[str, Arrival]] = []
        for name in dict.fromkeys(expect.connection for expect in step.expects):
            connection = self._connection(name)
            members = [expect for expect in step.expects if expect.connection == name]
            explicit_kinds = tuple(kind for expect in members for kind in expect.pattern.explicit_kinds)
            streams = {expect.pattern.stream for expect in members}
            stream = streams.pop() if len(streams) == 1 else None
            latest = max((expect.window for expect in members), key=lambda window: window.within)
            for _ in members:
                expected = "one of: " + "; ".join(expect.pattern.show(self._scope) for expect in members)
                judge = partial(self._check_member, connection, members, expected)
                arrival = self._arrival(connection, latest, expected, explicit_kinds, stream, judge)
                arrived.append((name, arrival))
        self._settle(step, arrived)

    def _check_member(
        self, connection: BaseConnection, members: list[Expect], expected: str, operation: Any
    ) -> None:
        found = closest(members, operation, self._scope)
        if found is not None:
            connection.mark_offending(operation)
            raise Failed(
                f"{connection.name}: fits no line of the group; nearest is line {found.line}: "
                + "; ".join(map(str, found.differences)),
                expected=expected,
                actual=str(operation),
            )

    def _settle(self, step: AnyOrder, arrived: list[tuple[str, Arrival]]) -> None:
        captures = assign(step.expects, [(name, arrival.operation) for name, arrival in arrived], self._scope)
        if captures is None:
            raise Failed(
                "the received operations do not match every line of the group",
                expected="; ".join(expect.pattern.show(self._scope) for expect in step.expects),
                actual="; ".join(str(arrival.operation) for _, arrival in arrived),
            )
        self._scope.captures.update(captures)
        for _ in step.expects:
            self._session.count_observation()

"""One server that a run restarts several times and several checks share.

A restart takes seconds and shows more than one requirement. So the ``parts`` share their restarts: each is a
generator that is given the session and the server, and yields where the server is to end and to start again.
The check that comes first plays all of them; the others, in whichever process, read how their part ended.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256

import msgspec
from msgspec import Struct

from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.outcomes import (
    CheckEnded,
    ClosedInstead,
    Failed,
    NotClaimed,
    NothingCame,
    StillOpen,
    Unsupported,
    Untestable,
)
from plumbline.conformance.runner.run_lock import file_lock
from plumbline.conformance.targets.own_server import OwnServer
from plumbline.verdicts import WireLine

Part = Callable[[AmqpSession, OwnServer], Iterator[None]]
Ending = Callable[[OwnServer], None]

_KINDS: Mapping[str, type[CheckEnded]] = {
    kind.__name__: kind
    for kind in (Failed, NothingCame, ClosedInstead, StillOpen, NotClaimed, Unsupported, Untestable)
}


class PartEnding(Struct, frozen=True):
    """How a part ended early, as ``conformance.outcomes`` says it."""

    kind: str
    message: str
    expected: str
    actual: str


class PartResult(Struct, frozen=True):
    """How a part ended, None being well, and what was exchanged during its steps."""

    ended: PartEnding | None
    wire: list[WireLine]


def judge_part(session: AmqpSession, part: Part, parts: Sequence[Part], endings: Sequence[Ending]) -> None:
    """The evidence of ``part``: raises what it raised. ``endings``: of all lives but the last.

    Raises also what kept the server from living: ``Unsupported``, ``Inconclusive``. Then nothing is kept, and
    who comes next plays again.
    """
    seen = _played_once(session, parts, endings)[part.__name__]
    session.journal.replace(seen.wire)
    if (ended := seen.ended) is not None:
        raise _KINDS[ended.kind](ended.message, expected=ended.expected, actual=ended.actual)
    session.count_observation()


def _played_once(
    session: AmqpSession, parts: Sequence[Part], endings: Sequence[Ending]
) -> dict[str, PartResult]:
    """Once in the run, if its processes share a folder."""
    if session.target.shared is None:
        return _play(session, parts, endings)
    names = "-".join(part.__name__ for part in parts)  # together too long for the name of a file
    file = session.target.shared / (sha256(names.encode()).hexdigest() + ".lives")
    with file_lock(file.with_suffix(".lock"), exclusive=True):
        if file.exists():
            return msgspec.msgpack.decode(file.read_bytes(), type=dict[str, PartResult])
        lives = _play(session, parts, endings)
        half = file.with_suffix(f".{os.getpid()}")
        half.write_bytes(msgspec.msgpack.encode(lives))
        half.replace(file)
        return lives


def _play(session: AmqpSession, parts: Sequence[Part], endings: Sequence[Ending]) -> dict[str, PartResult]:
    server = session.own_server()
    server.start()
    acting = {part.__name__: part(session, server) for part in parts}
    exchanged: list[tuple[str, WireLine]] = []  # with the part that acted meanwhile
    ended: dict[str, PartEnding | None] = {}
    for ending in (*endings, None):
        for name in [name for name in acting if name not in ended]:
            before = session.journal.position
            try:
                next(acting[name])
            except StopIteration:
                ended[name] = None
            except (Failed, Unsupported, Untestable) as error:
                ended[name] = PartEnding(type(error).__name__, error.message, error.expected, error.actual)
            exchanged += [(name, line) for line in session.journal.since(before)]
        if ending is not None and len(ended) < len(parts):
            ending(server)
            server.start()
    assert len(ended) == len(parts), "a part needs more restarts than are configured"
    return {name: PartResult(ended[name], _wire(name, exchanged)) for name in acting}


def _wire(part: str, exchanged: Sequence[tuple[str, WireLine]]) -> list[WireLine]:
    """What is of this part: all of a connection that only it used, though it came while others acted."""
    users: dict[str, set[str]] = {}
    for actor, line in exchanged:
        if line.direction == ">":
            users.setdefault(line.connection, set()).add(actor)
    owners = {connection: next(iter(actors)) for connection, actors in users.items() if len(actors) == 1}
    return [line for actor, line in exchanged if owners.get(line.connection, actor) == part]

"""What a recording of AMQP tells of queues, exchanges and messages that were there before it began."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from plumbline.captures.operations import Row
from plumbline.wire.amqp import Method
from plumbline.wire.sender import Direction

OBJECTS = frozenset({"queue", "exchange", "destination", "source"})  # arguments that name one
NOT_FOUND = 404
_EXCHANGES = frozenset({"exchange", "source"})


class Objects:
    """The named objects of some connections' methods, in the order of the recording."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self.names: set[str] = set()
        self.chosen_by_server = set(self._chosen())
        self._made: set[tuple[str, str]] = set()
        self._used: dict[tuple[str, str], None] = {}  # before they were made, if they were
        self._missing = set(self._not_found())
        for row in rows:
            if row.direction is Direction.TO_SERVER:
                self._ask(row.operation)
        self._first_of_before = dict(self._deliveries_before())

    @property
    def queues_before(self) -> list[str]:
        """Queues that the recording uses and did not declare."""
        return self._before("queue")

    @property
    def exchanges_before(self) -> list[str]:
        """Exchanges of that kind."""
        return self._before("exchange")

    @property
    def messages_before(self) -> list[tuple[str, Method]]:
        """Messages that came out of such queues and that nobody put in, with the queue."""
        return list(self._first_of_before.values())

    def is_first_of_before(self, row: Row) -> bool:
        """Whether this is the first delivery of such a message."""
        return id(row) in self._first_of_before

    def _before(self, kind: str) -> list[str]:
        return [name for used, name in self._used if used == kind and (used, name) not in self._missing]

    def _chosen(self) -> Iterator[str]:
        """Names in answers to requests that left them empty."""
        asked: dict[tuple[int, int, str], list[str]] = {}
        for row in self._rows:
            method: Method = row.operation
            name = {"queue.declare": "queue", "basic.consume": "consumer_tag"}.get(
                method.method.removesuffix("-ok")
            )
            if name is None:
                continue
            place = (row.connection.number, method.channel, method.method.removesuffix("-ok"))
            if not method.method.endswith("-ok"):
                if not method.arguments.get("no_wait"):
                    asked.setdefault(place, []).append(method.arguments[name])
            elif asked.get(place) and not asked[place].pop(0):
                yield method.arguments[name]

    def _not_found(self) -> Iterator[tuple[str, str]]:
        """What the last method before such an error named."""
        last: dict[tuple[int, int], Method] = {}
        for row in self._rows:
            method: Method = row.operation
            place = row.connection.number, method.channel
            if row.direction is Direction.TO_SERVER:
                last[place] = method
            elif method.method == "channel.close" and method.arguments["reply_code"] == NOT_FOUND:
                yield from _named(last[place]) if place in last else ()

    def _ask(self, method: Method) -> None:
        for kind, name in _named(method):
            self.names.add(name)
            is_made = method.method == f"{kind}.declare" and not method.arguments["passive"]
            if is_made and (kind, name) not in self._used:
                self._made.add((kind, name))
            elif (kind, name) not in self._made and name not in self.chosen_by_server:
                self._used.setdefault((kind, name))

    def _deliveries_before(self) -> Iterator[tuple[int, tuple[str, Method]]]:
        before = set(self.queues_before)
        published = {
            (method.arguments["exchange"], method.arguments["routing_key"], method.body)
            for row in self._rows
            if (method := row.operation).method == "basic.publish"
        }
        known: set[tuple[str, str, bytes]] = set()
        consumers: dict[tuple[int, int, str], str] = {}
        asked: dict[tuple[int, int], list[str]] = {}
        for row in self._rows:
            method = row.operation
            place = row.connection.number, method.channel
            if method.method == "basic.consume":
                consumers[(*place, method.arguments["consumer_tag"])] = method.arguments["queue"]
            elif method.method == "basic.get":
                asked.setdefault(place, []).append(method.arguments["queue"])
            elif method.method in ("basic.get-ok", "basic.get-empty", "basic.deliver"):
                if method.method == "basic.deliver":
                    queue = consumers.get((*place, method.arguments["consumer_tag"]), "")
                else:
                    queue = asked[place].pop(0) if asked.get(place) else ""
                if queue not in before or method.properties is None:
                    continue
                key = (method.arguments["exchange"], method.arguments["routing_key"], method.body)
                if key in published or (key in known and method.arguments["redelivered"]):
                    continue  # put in by the recording, or delivered again
                known.add(key)
                yield id(row), (queue, method)


def _named(method: Method) -> Iterator[tuple[str, str]]:
    """Kind and name of what a client's method is about; what the server has of its own is left out."""
    for argument in OBJECTS & method.arguments.keys():
        name = method.arguments[argument]
        if name and not name.startswith("amq."):
            of_exchange = argument in _EXCHANGES or method.method.startswith("exchange.")
            yield ("exchange" if of_exchange else "queue"), name

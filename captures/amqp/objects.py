"""Finds the queues, exchanges and messages that existed before a recording of AMQP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from plumbline.captures.operations import OperationRow
from plumbline.wire.amqp import OBJECT_ARGUMENTS, Method
from plumbline.wire.sender import Direction

NOT_FOUND = 404
_EXCHANGES = frozenset({"exchange", "source"})


class RecordedObjects:
    """The named objects of some connections' methods, in the order of the recording."""

    def __init__(self, rows: Sequence[OperationRow]) -> None:
        self._rows = rows
        self.names: set[str] = set()
        self.chosen_by_server = set(self._server_named())
        self._made: set[tuple[str, str]] = set()
        self._used: dict[tuple[str, str], None] = {}  # before they were made, if they were
        self._missing = set(self._not_found())
        for row in rows:
            if row.direction is Direction.TO_SERVER:
                self._remember_request(row.operation)
        self._first_existing_deliveries = dict(self._existing_deliveries())

    @property
    def existing_queues(self) -> list[str]:
        """Queues that the recording uses and did not declare."""
        return self._existing("queue")

    @property
    def existing_exchanges(self) -> list[str]:
        """Exchanges of that kind."""
        return self._existing("exchange")

    @property
    def existing_messages(self) -> list[tuple[str, Method]]:
        """Messages that came out of such queues and that were never published, with the queue."""
        return list(self._first_existing_deliveries.values())

    def is_first_existing_delivery(self, row: OperationRow) -> bool:
        """Whether this is the first delivery of such a message."""
        return id(row) in self._first_existing_deliveries

    def _existing(self, kind: str) -> list[str]:
        return [name for used, name in self._used if used == kind and (used, name) not in self._missing]

    def _server_named(self) -> Iterator[str]:
        """Names in answers to requests that left them empty."""
        requests: dict[tuple[int, int, str], list[str]] = {}
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
                    requests.setdefault(place, []).append(method.arguments[name])
            elif requests.get(place) and not requests[place].pop(0):
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

    def _remember_request(self, method: Method) -> None:
        for kind, name in _named(method):
            self.names.add(name)
            is_made = method.method == f"{kind}.declare" and not method.arguments["passive"]
            if is_made and (kind, name) not in self._used:
                self._made.add((kind, name))
            elif (kind, name) not in self._made and name not in self.chosen_by_server:
                self._used.setdefault((kind, name))

    def _existing_deliveries(self) -> Iterator[tuple[int, tuple[str, Method]]]:
        before = set(self.existing_queues)
        published = {
            (method.arguments["exchange"], method.arguments["routing_key"], method.body)
            for row in self._rows
            if (method := row.operation).method == "basic.publish"
        }
        known: set[tuple[str, str, bytes]] = set()
        consumers: dict[tuple[int, int, str], str] = {}
        requests: dict[tuple[int, int], list[str]] = {}
        for row in self._rows:
            method = row.operation
            place = row.connection.number, method.channel
            if method.method == "basic.consume":
                consumers[(*place, method.arguments["consumer_tag"])] = method.arguments["queue"]
            elif method.method == "basic.get":
                requests.setdefault(place, []).append(method.arguments["queue"])
            elif method.method in ("basic.get-ok", "basic.get-empty", "basic.deliver"):
                if method.method == "basic.deliver":
                    queue = consumers.get((*place, method.arguments["consumer_tag"]), "")
                else:
                    queue = requests[place].pop(0) if requests.get(place) else ""
                if queue not in before or method.properties is None:
                    continue
                key = (method.arguments["exchange"], method.arguments["routing_key"], method.body)
                if key in published or (key in known and method.arguments["redelivered"]):
                    continue  # put in by the recording, or delivered again
                known.add(key)
                yield id(row), (queue, method)


def _named(method: Method) -> Iterator[tuple[str, str]]:
    """Kind and name of what a client's method is about; what the server has of its own is left out."""
    for argument in OBJECT_ARGUMENTS & method.arguments.keys():
        name = method.arguments[argument]
        if name and not name.startswith("amq."):
            of_exchange = argument in _EXCHANGES or method.method.startswith("exchange.")
            yield ("exchange" if of_exchange else "queue"), name

"""Accounts: each is a ``Broker`` of its own, with its subjects and streams. Pure.

A client connects to the global account, the lobby. With CONNECT it moves to the account of its user. Imports
join accounts: a request goes to the account that exports the service, and the answer comes back.
Source: docs.nats.io, "Multi Tenancy using Accounts".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from random import Random

from msgspec import Struct, structs

from plumbline.bounds import ACCOUNT_HOPS, ACCOUNT_REPLIES
from plumbline.reference_broker.nats.assembly import build
from plumbline.reference_broker.nats.config import Account, Config, Export, Import, JetStreamOptions
from plumbline.reference_broker.nats.connection import NatsClientConnection
from plumbline.reference_broker.nats.core import Broker, Output
from plumbline.reference_broker.nats.host import Service
from plumbline.reference_broker.nats.info import ACCOUNT
from plumbline.reference_broker.nats.jetstream.streams.mapping import mapping
from plumbline.reference_broker.nats.state import NatsTimer
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats.subjects import covers

REPLY = b"_R_."  # begins the subject on which an exported service answers
_STAR = "*"
WILDCARDS = (_STAR, ">")
_NUMBERED = re.compile(r"\$[1-9]")


class AccountsCore:
    """Several accounts as one server: what a shell drives in the place of one ``Broker``."""

    def __init__(self, lobby: Broker, random: Random, defects: Iterable[str] = ()) -> None:
        self.lobby = lobby
        self.accounts: dict[str, Broker] = {ACCOUNT: lobby}
        self.homes: dict[int, Broker] = {}  # of clients that have moved
        config = lobby.config
        for account in config.accounts:
            if account.name != ACCOUNT:
                self.accounts[account.name] = _account_broker(lobby, account, random, defects)
        if not any(account.name == ACCOUNT for account in config.accounts):
            lobby.service = None  # with accounts, the global one has no JetStream of its own
        self.links = Links(self.accounts, config)
        for change in lobby.changes_of_links:
            change(self.links)
        for broker in self.accounts.values():
            broker.router.forget_routes()

    # shell.Core

    def on_connected(self, connection_id: int, now: int, peer: str) -> list[Output]:
        return self.lobby.on_connected(connection_id, now, peer)

    def on_data(self, connection_id: int, data: bytes, now: int) -> list[Output]:
        home = self.homes.get(connection_id)
        if home is None:
            return self._in_lobby(connection_id, data, now) + self._of_others()
        return home.on_data(connection_id, data, now) + self._of_others()

    def on_disconnected(self, connection_id: int, now: int) -> list[Output]:
        home = self.homes.pop(connection_id, self.lobby)
        return home.on_disconnected(connection_id, now) + self._of_others()

    def wake(self, now: int) -> list[Output]:
        outputs: list[Output] = []
        for broker in self.accounts.values():
            when = broker.next_wake()
            if when is not None and when <= now:
                outputs += broker.wake(now)
        return outputs + self._of_others()

    def next_wake(self) -> int | None:
        times = [when for broker in self.accounts.values() if (when := broker.next_wake()) is not None]
        return min(times, default=None)

    def reconfigure(self, config: Config) -> None:
        """As ``Broker.reconfigure``: the accounts stay those of the start."""
        self.lobby.reconfigure(config)
        for broker in self.accounts.values():
            broker.authenticator = self.lobby.authenticator

    def dismiss_refused(self) -> list[Output]:
        return [output for broker in self.accounts.values() for output in broker.dismiss_refused()]

    # The lobby

    def _of_others(self) -> list[Output]:
        """What an event has had sent in other accounts than its own."""
        return [output for broker in self.accounts.values() if broker.dirty for output in broker.flush()]

    def _in_lobby(self, connection_id: int, data: bytes, now: int) -> list[Output]:
        """Operations one by one until CONNECT has come: the others are for the account of the user."""
        lobby = self.lobby
        connection = lobby.connections.get(connection_id)
        if connection is None or _is_in(connection):
            return lobby.on_data(connection_id, data, now)
        operations, error = lobby.decode(connection, data)
        outputs: list[Output] = []
        home = lobby
        for position, operation in enumerate(operations):
            outputs += lobby.on_data(connection_id, [operation], now)
            if connection.closing:
                return outputs
            if _is_in(connection):
                home = self._move(connection, now)
                outputs += home.on_data(connection_id, operations[position + 1 :], now)
                break
        if connection_id in home.connections:
            outputs += self._end_of_read(home, connection, error, now)
        return outputs

    def _end_of_read(
        self, home: Broker, connection: NatsClientConnection, error: ProtocolError | None, now: int
    ) -> list[Output]:
        """What is behind the last whole operation."""
        if error is not None:
            home.on_malformed(connection, error)
        elif connection.awaiting_auth:
            home.check_opening(connection, connection.decoder.unfinished)
        return home.end_event(now)

    def _move(self, connection: NatsClientConnection, now: int) -> Broker:
        """To the account of its user, which is given back."""
        home = self.accounts[connection.account]
        if home is self.lobby:
            return home
        for timer in NatsTimer:
            self.lobby.timers.clear((connection.id, timer))
        del self.lobby.connections[connection.id]
        home.connections[connection.id] = connection
        home.timers.set((connection.id, NatsTimer.PING), now + home.first_ping_after())
        home.await_expiry(connection)
        self.homes[connection.id] = home
        return home


def _is_in(connection: NatsClientConnection) -> bool:
    return connection.connected


def _account_broker(lobby: Broker, account: Account, random: Random, defects: Iterable[str]) -> Broker:
    """Its streams are in memory: the store of files is that of the global account."""
    config, jetstream = lobby.config, None
    if config.jetstream is not None and account.jetstream is not None:
        jetstream = JetStreamOptions(domain=config.jetstream.domain, limits=account.jetstream)
    own = structs.replace(config, jetstream=jetstream, mappings=account.mappings)
    broker = build(own, random, defects)
    broker.identity, broker.authenticator = lobby.identity, lobby.authenticator
    return broker


class Route:
    """An import, seen from the account whose clients publish: where a subject leads, and under which name.

    ``is_single``: a request has one answer.
    """

    def __init__(self, target: str, source: str, to: str, *, is_single: bool = False) -> None:
        self.target = target  # the account
        self.translate = mapping(*_numbered(source, to))
        self.is_single = is_single


class Asked(Struct, frozen=True):
    """A request that is under way: whose, and where the answers go."""

    asker: Broker
    reply: bytes
    is_single: bool


class Links:
    """The imports between accounts, and the replies that are under way."""

    def __init__(self, accounts: Mapping[str, Broker], config: Config) -> None:
        self.accounts = accounts
        self.replies: dict[bytes, Asked] = {}  # by their subject in the exporting account
        self.services: dict[str, list[Route]] = {name: [] for name in accounts}
        self.streams: dict[str, list[Route]] = {name: [] for name in accounts}
        self._choose = next(iter(accounts.values())).choose
        self._hops = 0
        for account in config.accounts:
            for one in account.imports:
                if one.kind == "service":
                    is_single = _is_single(config, one)
                    route = Route(one.account, one.to, one.subject, is_single=is_single)
                    self.services[account.name].append(route)
                else:
                    self.streams[one.account].append(Route(account.name, one.subject, one.to))
        if any(account.imports for account in config.accounts):
            for name, broker in accounts.items():
                self._join(name, broker)

    def _join(self, name: str, broker: Broker) -> None:
        """Let an account hear what concerns its imports, and what importers have asked it."""
        broker.service = LinkedService(self, name, broker.service)
        deliver, has_interest = broker.deliver, broker.has_interest

        def deliver_everywhere(
            target: bytes, subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes
        ) -> int:
            if target.startswith(REPLY):
                return self.answer(target, subject, reply, header_block, payload)
            count = deliver(target, subject, reply, header_block, payload)
            return count + self.forward(name, target, reply, header_block, payload)

        def has_interest_somewhere(subject: bytes) -> bool:
            if (asked := self.replies.get(subject)) is not None:
                return asked.asker.has_interest(asked.reply)
            return has_interest(subject)

        vars(broker)["deliver"] = deliver_everywhere
        vars(broker)["has_interest"] = has_interest_somewhere

    def concerns(self, account: str, subject: bytes) -> bool:
        routes = self.services[account] + self.streams[account]
        return subject.startswith(REPLY) or any(route.translate(subject) is not None for route in routes)

    def request(
        self, account: str, subject: bytes, reply: bytes | None, block: bytes, payload: bytes, now: int
    ) -> bool:
        """To the accounts that export the service; whether anybody there took it."""
        taken = False
        for route in self.services[account]:
            there = route.translate(subject)
            if there is None or self._hops >= ACCOUNT_HOPS:
                continue
            inbox = None
            if reply is not None:
                inbox = self.inbox(Asked(self.accounts[account], reply, route.is_single))
            self._hops += 1
            taken |= _publish(self.accounts[route.target], there, inbox, block, payload, now)
            self._hops -= 1
        return taken

    def inbox(self, asked: Asked) -> bytes:
        """A subject in the exporting account that leads back."""
        if len(self.replies) >= ACCOUNT_REPLIES:
            del self.replies[next(iter(self.replies))]
        inbox = REPLY + b"".join(b"%c" % (97 + self._choose(26)) for _ in range(14))
        self.replies[inbox] = asked
        return inbox

    def answer(self, inbox: bytes, subject: bytes, reply: bytes | None, block: bytes, payload: bytes) -> int:
        """From the exporting account to who asked; ``subject`` is another one for messages of a stream."""
        asked = self.replies.get(inbox)
        if asked is None:
            return 0
        if asked.is_single:
            del self.replies[inbox]
        target = asked.reply
        return asked.asker.deliver(target, target if subject == inbox else subject, reply, block, payload)

    def forward(self, account: str, subject: bytes, reply: bytes | None, block: bytes, payload: bytes) -> int:
        """A message of an exported stream to the accounts that import it; how many got it."""
        count = 0
        for route in self.streams[account]:
            there = route.translate(subject)
            if there is not None and self._hops < ACCOUNT_HOPS:
                self._hops += 1
                count += self.accounts[route.target].deliver(there, there, reply, block, payload)
                self._hops -= 1
        return count


class LinkedService:
    """The service of an account with links: ``inner`` is its JetStream, if it has that."""

    def __init__(self, links: Links, account: str, inner: Service | None) -> None:
        self.links = links
        self.account = account
        self.inner = inner

    def handles_subject(self, subject: bytes) -> bool:
        if self.links.concerns(self.account, subject):
            return True
        return self.inner is not None and self.inner.handles_subject(subject)

    def on_message(
        self, subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes, now: int
    ) -> bool:
        links = self.links
        if subject.startswith(REPLY):
            return bool(links.answer(subject, subject, reply, header_block, payload))
        taken = links.request(self.account, subject, reply, header_block, payload, now)
        taken |= bool(links.forward(self.account, subject, reply, header_block, payload))
        if self.inner is not None and self.inner.handles_subject(subject):
            taken |= self.inner.on_message(subject, reply, header_block, payload, now)
        return taken

    def on_subscribed(self, subject: bytes, now: int) -> None:
        if self.inner is not None:
            self.inner.on_subscribed(subject, now)

    def on_unsubscribed(self, subject: bytes, now: int) -> None:
        if self.inner is not None:
            self.inner.on_unsubscribed(subject, now)

    def wake(self, now: int) -> None:
        if self.inner is not None:
            self.inner.wake(now)

    def next_wake(self) -> int | None:
        return self.inner.next_wake() if self.inner is not None else None


def _publish(
    broker: Broker, subject: bytes, reply: bytes | None, block: bytes, payload: bytes, now: int
) -> bool:
    """As if a client of the account had published; whether anybody took it."""
    route = broker.router.route(subject)
    count = broker.router.deliver(route, broker.own_message(subject, reply, block, payload), None)
    served = route.served and broker.service_accepts(subject, reply, block, payload, now)
    return bool(count) or served


def _numbered(source: str, to: str) -> tuple[str, str]:
    """``a.*`` to ``b.*`` as ``a.*`` to ``b.$1``: wildcards keep their order, or have numbers."""
    numbers = _NUMBERED.findall(source)
    source = _NUMBERED.sub(_STAR, source)
    order = [numbers.index(f"${one}") + 1 for one in range(1, len(numbers) + 1)] if numbers else []
    tokens, seen = to.split("."), 0
    for position, token in enumerate(tokens):
        if token == _STAR:
            seen += 1
            tokens[position] = f"${order[seen - 1] if seen <= len(order) else seen}"
    return source, ".".join(tokens)


def import_problem(accounts: Sequence[Account]) -> str:
    """Why no server takes these imports; empty if it does."""
    exports: dict[str, tuple[Export, ...]] = {account.name: account.exports for account in accounts}
    for account in accounts:
        for one in account.imports:
            if one.account not in exports:
                return f'account "{one.account}" of an import of "{account.name}" is not there'
            numbers = sorted(_NUMBERED.findall(one.to))
            if one.kind == "service" and numbers != [f"${number + 1}" for number in range(len(numbers))]:
                return f'"{one.to}" of an import of "{account.name}" has wildcards in a wrong number'
            if not any(_grants(export, one, account.name) for export in exports[one.account]):
                return (
                    f'"{account.name}" imports "{one.subject}", which "{one.account}" does not export to it'
                )
    return ""


def _is_single(config: Config, wanted: Import) -> bool:
    """Whether the narrowest export of the service gives one answer to a request."""
    exporting = next((one for one in config.accounts if one.name == wanted.account), None)
    exports = [one for one in (exporting.exports if exporting else ()) if _matches(one, wanted)]
    return bool(exports) and max(exports, key=_narrowness).response_type == "singleton"


def _narrowness(export: Export) -> tuple[int, int]:
    """More for fewer subjects."""
    tokens = export.subject.split(".")
    return len(tokens), sum(token not in WILDCARDS for token in tokens)


def _grants(export: Export, wanted: Import, account: str) -> bool:
    is_for = export.accounts is None or account in export.accounts
    return is_for and _matches(export, wanted)


def _matches(export: Export, wanted: Import) -> bool:
    return export.kind == wanted.kind and covers(export.subject.encode(), wanted.subject.encode())

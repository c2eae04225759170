"""What was published against what was delivered, for every receiver, by payload identity.

A receiver is a JetStream consumer, an AMQP queue, or a subscription (a queue group counts as one). What
became of each message is judged by ``monitors.histories``; this module says which messages a receiver was
to get, and what the captures cannot tell. That is given to the judge as unknown, so it is never a fault:

- a message that nothing published after it has overtaken, unless the receiver was shown to have read on until
  nothing was left (a pull answered 404 or 408, basic.get-empty, CONSUMER.INFO with nothing pending);
- all that is missing where the capture of a connection has a hole or begins in its middle.

Identity is the payload; a message id tells equal payloads apart. ``route`` is a NATS subject, or AMQP
exchange and routing key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b

from msgspec import Struct, field

from plumbline.monitors import Place
from plumbline.monitors.histories import (
    Delivered,
    History,
    Judgement,
    Publication,
    Published,
    Settlement,
    judge,
)


def digest(payload: bytes) -> str:
    """A payload's identity."""
    return blake2b(payload, digest_size=16).hexdigest()


class Attempt(Struct):
    """One attempt to publish. ``publisher``: whose attempts keep their order. ``answered``, and ``read``:
    when the server was seen to have read it, in ns since 1970. ``outcome`` is that of its answer."""

    place: Place
    route: str
    payload: str
    publisher: str
    message_id: str = ""
    asks: bool = False  # for an answer
    answered: int | None = None
    read: int | None = None
    outcome: Publication = Publication.UNKNOWN
    stream: str = ""
    position: int | None = None

    def ended(self, outcome: Publication, at: int) -> None:
        """The first answer counts."""
        if self.answered is None:
            self.answered, self.outcome = at, outcome

    def reached(self, receiver: Receiver) -> Publication:
        """Whether that receiver is to get it. A subscription gets what the server reads, stored or not."""
        if receiver.is_subscription and self.read is not None:
            return Publication.OK
        return self.outcome


class Arrival(Struct):
    """One delivery. ``settled``: as its acknowledgement says; ``stored``: when the server took it, in ns."""

    place: Place
    route: str
    payload: str
    message_id: str = ""
    position: int | None = None
    is_again: bool = False  # the server says that it delivered it before
    settled: Settlement = Settlement.OPEN
    stored: int | None = None


class Receiver(Struct):
    """Who was to get messages. ``accepts``: whether a route is wanted, None if that was not seen."""

    name: str
    stream: str = ""  # of a JetStream consumer
    is_subscription: bool = False
    ack_policy: str = ""  # of a JetStream consumer: none, all, explicit; empty if it was not seen
    accepts: Callable[[str], bool | None] = lambda _: None
    since: int = 0  # ns; what was published before that is not expected
    until: int | None = None
    read_until: int = 0  # ns; what was published before that has come, if it ever comes
    holes: bool = False
    arrivals: list[Arrival] = []


class Ledger(Struct):
    """All that the captures tell of publishers and receivers."""

    attempts: list[Attempt] = []
    receivers: dict[str, Receiver] = {}
    bindings: set[tuple[str, str]] = set()  # of AMQP: receiver and route
    torn: set[str] = set()  # connections whose captures have holes, or begin in their middle
    inboxes: set[str] = set()  # reply subjects: who hears answers is no receiver


class Finding(Struct, frozen=True):
    """One message, by where it is seen first; ``arrivals`` are all its deliveries."""

    id: str
    published: tuple[Place, ...]
    arrivals: tuple[Place, ...]


class Audited(Struct, frozen=True):
    """What became of the messages of one receiver. ``findings``: of those that are not ok, by id."""

    receiver: str
    judgement: Judgement
    findings: dict[str, Finding]
    remarks: tuple[str, ...] = ()


class _Message(Struct):
    """One message to be delivered, with its attempts and what came of it."""

    id: str
    attempts: list[Attempt]
    arrivals: list[Arrival] = field(default_factory=list)

    @property
    def at(self) -> int:
        """When it was published: the server has it at the latest when it answers."""
        ends = [end for one in self.attempts if (end := one.answered or one.read) is not None]
        return min(ends, default=self.attempts[0].place.at)

    def outcome(self, receiver: Receiver) -> Publication:
        order = (Publication.OK, Publication.UNKNOWN, Publication.FAILED)
        return min((one.reached(receiver) for one in self.attempts), key=order.index)

    @property
    def positions(self) -> set[int]:
        return {one.position for one in self.attempts if one.position is not None}


_Key = tuple[str, str, str]


def audit(ledger: Ledger) -> list[Audited]:
    """Each receiver that got something, or was to get something."""
    return [
        audited for receiver in ledger.receivers.values() if (audited := _audit(receiver, ledger)) is not None
    ]


def _audit(receiver: Receiver, ledger: Ledger) -> Audited | None:
    wanted = _wanted(receiver, ledger.attempts)
    if not wanted and not receiver.arrivals:
        return None
    messages = _messages(wanted)
    strangers: list[tuple[str, Arrival]] = []
    for number, arrival in enumerate(receiver.arrivals):
        message = _message_of(arrival, messages)
        if message is None:
            strangers.append((f"{arrival.route} {arrival.payload[:12]} unpublished {number}", arrival))
        else:
            message.arrivals.append(arrival)
    known = [one for group in messages.values() for one in group]
    in_order = sorted((one for one in known if one.arrivals or _is_in_time(one, receiver)), key=_published_at)
    made_up, earlier, unseen = _told_apart(strangers, wanted, ledger.torn)
    arrived = _Overtaking(in_order)
    history = History(
        tuple(Published(one.id, _expectation(one, receiver, arrived)) for one in in_order),
        tuple(
            [one for message in in_order for one in _deliveries(message)]
            + [Delivered(name) for name, _ in made_up]
        ),
    )
    judgement = judge(history)
    odd = {*judgement.lost, *judgement.duplicated, *judgement.unexpected, *judgement.indeterminate}
    findings = {one.id: _finding(one) for one in in_order if one.id in odd}
    findings |= {name: Finding(name, (), (arrival.place,)) for name, arrival in made_up}
    remarks = []
    if (left_out := len(known) - len(in_order)) and not receiver.is_subscription:
        remarks.append(f"{left_out} more were published before the captures show it")
    if earlier:
        remarks.append(f"{earlier} more were stored before the captures begin")
    if unseen:
        remarks.append(f"{unseen} more came from publishers that the captures do not have, or not whole")
    if receiver.holes:
        remarks.append("its captures have holes or begin in the middle: what is missing may be in them")
    return Audited(receiver.name, judgement, findings, tuple(remarks))


def _wanted(receiver: Receiver, attempts: Iterable[Attempt]) -> list[Attempt]:
    """The attempts that concern it. What it wants, where that was not seen, is what it was given."""
    of_its_own = [one for one in attempts if receiver.stream and one.stream == receiver.stream]
    given = {arrival.route for arrival in receiver.arrivals}
    stored = given | {one.route for one in of_its_own}
    wanted = []
    for attempt in attempts:
        is_of_another = attempt.stream or attempt.route not in stored
        if receiver.stream and attempt.stream != receiver.stream and is_of_another:
            continue
        accepted = receiver.accepts(attempt.route)
        if accepted or (accepted is None and attempt.route in given):
            wanted.append(attempt)
    return wanted


def _is_in_time(message: _Message, receiver: Receiver) -> bool:
    """Whether it was published while the receiver was there to be given it."""
    begun = message.attempts[0].place.at >= receiver.since
    return begun and (receiver.until is None or message.at <= receiver.until)


# -- which attempts are one message, and which deliveries are its own --


def _messages(attempts: Iterable[Attempt]) -> dict[_Key, list[_Message]]:
    """By route and payload: one message, unless the same was published again though it had been answered."""
    found: dict[_Key, list[_Message]] = {}
    for attempt in sorted(attempts, key=lambda one: one.place.at):
        group = found.setdefault((attempt.route, attempt.payload, attempt.message_id), [])
        if group and _is_retry(attempt, group[-1]):
            group[-1].attempts.append(attempt)
            continue
        name = " ".join(filter(None, (attempt.route, attempt.message_id or attempt.payload[:12])))
        group.append(_Message(name if not group else f"{name} ({len(group) + 1})", [attempt]))
    return found


def _is_retry(attempt: Attempt, of: _Message) -> bool:
    if attempt.message_id:
        return True
    return all(one.asks and (one.answered is None or one.answered > attempt.place.at) for one in of.attempts)


def _message_of(arrival: Arrival, messages: dict[_Key, list[_Message]]) -> _Message | None:
    group = messages.get((arrival.route, arrival.payload, arrival.message_id), [])
    if not group:
        return None
    for message in group:
        if arrival.position is not None and arrival.position in message.positions:
            return message
    if arrival.is_again:
        return next((one for one in reversed(group) if one.arrivals), group[0])
    open_ones = [one for one in group if not one.arrivals and not one.positions]
    return open_ones[0] if open_ones else group[-1]


def _deliveries(message: _Message) -> Iterator[Delivered]:
    """Without a position of the server's own, what it does not call redelivered is another copy."""
    copy = 0
    for number, arrival in enumerate(message.arrivals):
        is_last = number + 1 == len(message.arrivals)
        copy += not arrival.is_again or copy == 0
        settled = arrival.settled
        if is_last and settled is Settlement.OPEN:
            settled = Settlement.UNKNOWN  # what became of it comes after the captures
        elif is_last and settled is Settlement.UNKNOWN:
            settled = Settlement.CONFIRMED  # acknowledged, and it never came again
        yield Delivered(message.id, copy if arrival.position is None else arrival.position, settled)


def _published_at(message: _Message) -> int:
    return message.attempts[0].place.at


# -- what cannot be told --


class _Overtaking:
    """What arrived last: of each publisher, and of all that is stored."""

    def __init__(self, messages: Iterable[_Message]) -> None:
        arrived = [one for one in messages if one.arrivals]
        self.position = max((max(one.positions) for one in arrived if one.positions), default=0)
        self.index: dict[str, int] = {}
        for attempt in (attempt for one in arrived for attempt in one.attempts):
            self.index[attempt.publisher] = max(attempt.place.index, self.index.get(attempt.publisher, 0))

    def overtook(self, message: _Message) -> bool:
        if message.positions:
            return min(message.positions) < self.position
        return any(one.place.index < self.index.get(one.publisher, 0) for one in message.attempts)


def _expectation(message: _Message, receiver: Receiver, arrived: _Overtaking) -> Publication:
    """How the attempt ended; unknown for what may still come, or may be where the capture has a hole."""
    outcome = message.outcome(receiver)
    is_overtaken = arrived.overtook(message)
    is_unanswered = all(one.answered is None for one in message.attempts)
    if is_overtaken and is_unanswered and not receiver.stream and not message.arrivals:
        outcome = Publication.OK  # the server has read it, since it has read what came after it
    if outcome is not Publication.OK or message.arrivals:
        return outcome
    if receiver.holes or not (is_overtaken or message.at < receiver.read_until):
        return Publication.UNKNOWN
    return Publication.OK


def _told_apart(
    strangers: list[tuple[str, Arrival]], wanted: list[Attempt], torn_publishers: set[str]
) -> tuple[list[tuple[str, Arrival]], int, int]:
    """What nobody published; and how many came from before the captures, or from outside of them."""
    first: dict[str, int] = {}
    for attempt in wanted:
        first.setdefault(attempt.route, attempt.place.at)
        first[attempt.route] = min(first[attempt.route], attempt.place.at)
    torn = {one.route for one in wanted if one.place.connection in torn_publishers}
    made_up: list[tuple[str, Arrival]] = []
    earlier = unseen = 0
    for name, arrival in strangers:
        begun = first.get(arrival.route)
        if begun is None or arrival.route in torn:
            unseen += 1
        elif arrival.stored is not None and arrival.stored < begun:
            earlier += 1
        else:
            made_up.append((name, arrival))
    return made_up, earlier, unseen


def _finding(message: _Message) -> Finding:
    return Finding(
        message.id,
        tuple(attempt.place for attempt in message.attempts),
        tuple(arrival.place for arrival in message.arrivals),
    )

"""The delivery audit: compares published with delivered messages, per receiver, by payload.

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
    History,
    HistoryDelivery,
    Judgement,
    PublishAttempt,
    PublishOutcome,
    Settlement,
    judge_history,
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
    outcome: PublishOutcome = PublishOutcome.UNKNOWN
    stream: str = ""
    position: int | None = None

    def ended(self, outcome: PublishOutcome, at: int) -> None:
        """The first answer counts."""
        if self.answered is None:
            self.answered, self.outcome = at, outcome

    def is_for(self, receiver: Receiver) -> PublishOutcome:
        """Whether that receiver is to get it. A subscription gets what the server reads, stored or not."""
        if receiver.is_subscription and self.read is not None:
            return PublishOutcome.OK
        return self.outcome


class AuditedDelivery(Struct):
    """One delivery. ``settlement``: as its acknowledgement says; ``stored_ns``: when the server took it, in
    ns."""

    place: Place
    route: str
    payload: str
    message_id: str = ""
    position: int | None = None
    is_redelivered: bool = False  # the server says that it delivered it before
    settlement: Settlement = Settlement.OPEN
    stored_ns: int | None = None


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
    has_gaps: bool = False
    arrivals: list[AuditedDelivery] = []


class DeliveryAudit(Struct):
    """All that the captures tell of publishers and receivers."""

    attempts: list[Attempt] = []
    receivers: dict[str, Receiver] = {}
    bindings: set[tuple[str, str]] = set()  # of AMQP: receiver and route
    incomplete_publishers: set[str] = set()  # connections whose captures have holes, or begin in their middle
    inboxes: set[str] = set()  # reply subjects: who hears answers is no receiver


class MessageFinding(Struct, frozen=True):
    """One message, by where it is seen first; ``arrivals`` are all its deliveries."""

    id: str
    published: tuple[Place, ...]
    arrivals: tuple[Place, ...]


class ReceiverAudit(Struct, frozen=True):
    """The outcome of the messages of one receiver. ``findings``: of those that are not ok, by id."""

    receiver: str
    judgement: Judgement
    findings: dict[str, MessageFinding]
    remarks: tuple[str, ...] = ()


class _AuditedMessage(Struct):
    """One message to be delivered, with its attempts and their outcome."""

    id: str
    attempts: list[Attempt]
    arrivals: list[AuditedDelivery] = field(default_factory=list)

    @property
    def at(self) -> int:
        """When it was published: the server has it at the latest when it answers."""
        ends = [end for one in self.attempts if (end := one.answered or one.read) is not None]
        return min(ends, default=self.attempts[0].place.at)

    def outcome(self, receiver: Receiver) -> PublishOutcome:
        order = (PublishOutcome.OK, PublishOutcome.UNKNOWN, PublishOutcome.FAILED)
        return min((one.is_for(receiver) for one in self.attempts), key=order.index)

    @property
    def positions(self) -> set[int]:
        return {one.position for one in self.attempts if one.position is not None}


_Key = tuple[str, str, str]


def audit(entries: DeliveryAudit) -> list[ReceiverAudit]:
    """Each receiver that got something, or was to get something."""
    return [
        audited
        for receiver in entries.receivers.values()
        if (audited := _audit(receiver, entries)) is not None
    ]


def _audit(receiver: Receiver, entries: DeliveryAudit) -> ReceiverAudit | None:
    attempts = _relevant_attempts(receiver, entries.attempts)
    if not attempts and not receiver.arrivals:
        return None
    messages = _messages(attempts)
    strangers: list[tuple[str, AuditedDelivery]] = []
    for number, arrival in enumerate(receiver.arrivals):
        message = _message_of(arrival, messages)
        if message is None:
            strangers.append((f"{arrival.route} {arrival.payload[:12]} unpublished {number}", arrival))
        else:
            message.arrivals.append(arrival)
    known = [one for group in messages.values() for one in group]
    in_order = sorted((one for one in known if one.arrivals or _is_in_time(one, receiver)), key=_published_at)
    made_up, earlier, unseen = _classify_unexpected(strangers, attempts, entries.incomplete_publishers)
    arrived = _OrderTracker(in_order)
    history = History(
        tuple(PublishAttempt(one.id, _expectation(one, receiver, arrived)) for one in in_order),
        tuple(
            [one for message in in_order for one in _deliveries(message)]
            + [HistoryDelivery(name) for name, _ in made_up]
        ),
    )
    judgement = judge_history(history)
    odd = {*judgement.lost, *judgement.duplicated, *judgement.unexpected, *judgement.indeterminate}
    findings = {one.id: _finding(one) for one in in_order if one.id in odd}
    findings |= {name: MessageFinding(name, (), (arrival.place,)) for name, arrival in made_up}
    remarks = []
    if (left_out := len(known) - len(in_order)) and not receiver.is_subscription:
        remarks.append(f"{left_out} more were published before the captures show the receiver")
    if earlier:
        remarks.append(f"{earlier} more were stored before the captures begin")
    if unseen:
        remarks.append(f"{unseen} more came from publishers that the captures lack, wholly or in part")
    if receiver.has_gaps:
        remarks.append("its captures have gaps or start late: missing messages may be in the gaps")
    return ReceiverAudit(receiver.name, judgement, findings, tuple(remarks))


def _relevant_attempts(receiver: Receiver, attempts: Iterable[Attempt]) -> list[Attempt]:
    """The attempts that concern it. What it wants, where that was not seen, is what it was given."""
    of_its_own = [one for one in attempts if receiver.stream and one.stream == receiver.stream]
    delivered_routes = {arrival.route for arrival in receiver.arrivals}
    stored = delivered_routes | {one.route for one in of_its_own}
    relevant = []
    for attempt in attempts:
        is_of_another = attempt.stream or attempt.route not in stored
        if receiver.stream and attempt.stream != receiver.stream and is_of_another:
            continue
        accepted = receiver.accepts(attempt.route)
        if accepted or (accepted is None and attempt.route in delivered_routes):
            relevant.append(attempt)
    return relevant


def _is_in_time(message: _AuditedMessage, receiver: Receiver) -> bool:
    """Whether it was published while the receiver was there to be given it."""
    published_after_start = message.attempts[0].place.at >= receiver.since
    return published_after_start and (receiver.until is None or message.at <= receiver.until)


# -- which attempts are one message, and which deliveries are its own --


def _messages(attempts: Iterable[Attempt]) -> dict[_Key, list[_AuditedMessage]]:
    """By route and payload: one message, unless the same was published again though it had been answered."""
    found: dict[_Key, list[_AuditedMessage]] = {}
    for attempt in sorted(attempts, key=lambda one: one.place.at):
        group = found.setdefault((attempt.route, attempt.payload, attempt.message_id), [])
        if group and _is_retry(attempt, group[-1]):
            group[-1].attempts.append(attempt)
            continue
        name = " ".join(filter(None, (attempt.route, attempt.message_id or attempt.payload[:12])))
        group.append(_AuditedMessage(name if not group else f"{name} ({len(group) + 1})", [attempt]))
    return found


def _is_retry(attempt: Attempt, of: _AuditedMessage) -> bool:
    if attempt.message_id:
        return True
    return all(one.asks and (one.answered is None or one.answered > attempt.place.at) for one in of.attempts)


def _message_of(
    arrival: AuditedDelivery, messages: dict[_Key, list[_AuditedMessage]]
) -> _AuditedMessage | None:
    group = messages.get((arrival.route, arrival.payload, arrival.message_id), [])
    if not group:
        return None
    for message in group:
        if arrival.position is not None and arrival.position in message.positions:
            return message
    if arrival.is_redelivered:
        return next((one for one in reversed(group) if one.arrivals), group[0])
    open_ones = [one for one in group if not one.arrivals and not one.positions]
    return open_ones[0] if open_ones else group[-1]


def _deliveries(message: _AuditedMessage) -> Iterator[HistoryDelivery]:
    """Without a position of the server's own, what it does not call redelivered is another copy."""
    copy = 0
    for number, arrival in enumerate(message.arrivals):
        is_last = number + 1 == len(message.arrivals)
        copy += not arrival.is_redelivered or copy == 0
        settled = arrival.settlement
        if is_last and settled is Settlement.OPEN:
            settled = Settlement.UNKNOWN  # its outcome comes after the captures
        elif is_last and settled is Settlement.UNKNOWN:
            settled = Settlement.CONFIRMED  # acknowledged, and it never came again
        yield HistoryDelivery(message.id, copy if arrival.position is None else arrival.position, settled)


def _published_at(message: _AuditedMessage) -> int:
    return message.attempts[0].place.at


# -- what is not decidable --


class _OrderTracker:
    """What arrived last: of each publisher, and of all that is stored."""

    def __init__(self, messages: Iterable[_AuditedMessage]) -> None:
        arrived = [one for one in messages if one.arrivals]
        self.position = max((max(one.positions) for one in arrived if one.positions), default=0)
        self.index: dict[str, int] = {}
        for attempt in (attempt for one in arrived for attempt in one.attempts):
            self.index[attempt.publisher] = max(attempt.place.index, self.index.get(attempt.publisher, 0))

    def overtook(self, message: _AuditedMessage) -> bool:
        if message.positions:
            return min(message.positions) < self.position
        return any(one.place.index < self.index.get(one.publisher, 0) for one in message.attempts)


def _expectation(message: _AuditedMessage, receiver: Receiver, arrived: _OrderTracker) -> PublishOutcome:
    """How the attempt ended; unknown for what may still come, or may be where the capture has a hole."""
    outcome = message.outcome(receiver)
    is_overtaken = arrived.overtook(message)
    is_unanswered = all(one.answered is None for one in message.attempts)
    if is_overtaken and is_unanswered and not receiver.stream and not message.arrivals:
        outcome = PublishOutcome.OK  # the server has read it, since it has read what came after it
    if outcome is not PublishOutcome.OK or message.arrivals:
        return outcome
    if receiver.has_gaps or not (is_overtaken or message.at < receiver.read_until):
        return PublishOutcome.UNKNOWN
    return PublishOutcome.OK


def _classify_unexpected(
    strangers: list[tuple[str, AuditedDelivery]], attempts: list[Attempt], torn_publishers: set[str]
) -> tuple[list[tuple[str, AuditedDelivery]], int, int]:
    """What was never published; and how many came from before the captures, or from outside of them."""
    first: dict[str, int] = {}
    for attempt in attempts:
        first.setdefault(attempt.route, attempt.place.at)
        first[attempt.route] = min(first[attempt.route], attempt.place.at)
    torn = {one.route for one in attempts if one.place.connection in torn_publishers}
    made_up: list[tuple[str, AuditedDelivery]] = []
    earlier = unseen = 0
    for name, arrival in strangers:
        first_seen = first.get(arrival.route)
        if first_seen is None or arrival.route in torn:
            unseen += 1
        elif arrival.stored_ns is not None and arrival.stored_ns < first_seen:
            earlier += 1
        else:
            made_up.append((name, arrival))
    return made_up, earlier, unseen


def _finding(message: _AuditedMessage) -> MessageFinding:
    return MessageFinding(
        message.id,
        tuple(attempt.place for attempt in message.attempts),
        tuple(arrival.place for arrival in message.arrivals),
    )

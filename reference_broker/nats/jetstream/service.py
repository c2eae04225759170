"""JetStream inside the broker: routes what clients publish to the API, to streams and to acknowledgements.

Pure: no I/O, no clock, no task; time comes in, names and ids come from the configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from string import ascii_letters, digits
from typing import Any

import msgspec
from msgspec import Struct

from plumbline.reference_broker.nats.config import AccountLimits
from plumbline.reference_broker.nats.host import Host
from plumbline.reference_broker.nats.jetstream.api.routing import Api
from plumbline.reference_broker.nats.jetstream.api.snapshots import SUBJECTS as _SNAPSHOT
from plumbline.reference_broker.nats.jetstream.api.snapshots import Snapshots
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckSubjectFields
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.consumers.push import FLOW_CONTROL, PushDelivery
from plumbline.reference_broker.nats.jetstream.files.stream_files import StreamFiles
from plumbline.reference_broker.nats.jetstream.rules import Rules
from plumbline.reference_broker.nats.jetstream.streams import copying
from plumbline.reference_broker.nats.jetstream.streams.config import StreamConfig
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.reference_broker.nats.jetstream.timers import Timers
from plumbline.reference_broker.nats.levels import NEWEST, Level
from plumbline.reference_broker.write_queue import WriteQueue
from plumbline.wire.nats.headers import Status
from plumbline.wire.nats.jetstream import CONSUMER_IS_PUSH_BASED
from plumbline.wire.nats.jetstream.times import format_time
from plumbline.wire.nats.subjects import covers

_SYSTEM = b"$"
_RESERVED = b"$JS."
_API = b"$JS.API."
_ACK = b"$JS.ACK."
_NEXT = b"$JS.API.CONSUMER.MSG.NEXT."
_ALPHABET = ascii_letters + digits
_WILDCARDS = {b"*", b">"}
_MAX_CACHED_SUBJECTS = 100_000


class JetStreamConfig(Struct, frozen=True, kw_only=True):
    """``level`` is the age of the servers to behave like; ``random`` the only source of names and ids.

    With a ``write_queue`` streams in files enter there what is to be written.
    With a ``domain`` the API is also below ``$JS.<domain>.API.`` (ADR-19). ``max_payload``: the core's, in
    bytes.
    """

    level: Level = NEWEST
    domain: str | None = None
    max_payload: int = 1024 * 1024
    limits: AccountLimits = AccountLimits()
    write_queue: WriteQueue | None = None
    random: Random = msgspec.field(default_factory=lambda: Random(0))


class JetStream:
    """The service the broker core drives (``host.Service``).

    Its streams and consumers are of ``stream_type`` and ``consumer_type``; a defect puts a subclass in their
    place, for one broker.
    """

    stream_type: type[Stream] = Stream
    consumer_type: type[Consumer] = Consumer
    most_subjects = 1024  # that one direct get may match: ADR-31, "Multi-subject requests"

    def __init__(self, config: JetStreamConfig, host: Host) -> None:
        self.config = config
        self.host = host
        self.rules = Rules.of(config.level)
        self.timers = Timers()
        self.route = copying.CopyRoute()
        self.streams: dict[str, Stream] = {}
        self.targets: dict[bytes, list[PushDelivery]] = {}  # push consumers by deliver_subject
        self.now = 0
        self.encode: Callable[[Any], bytes] = msgspec.json.encode
        self.api = Api(self)
        self.snapshots = Snapshots(self)
        self._capturing: dict[bytes, Stream | None] = {}  # what find_stream returned, by subject
        self._domain_prefix = f"$JS.{config.domain}.API.".encode() if config.domain else None
        self._first_tokens: set[bytes] = set()  # of all subjects that streams listen on

    # Files

    def files_of(self, config: StreamConfig) -> StreamFiles | None:
        """Where a stream is kept; None: in memory."""
        write_queue = self.config.write_queue
        return (
            StreamFiles(config.name, write_queue)
            if write_queue is not None and config.storage == "file"
            else None
        )

    def recover(self, files: Mapping[str, bytes], now: int) -> list[str]:
        """Go on where ``files`` end; what was lost, in sentences. For a service that was not used yet."""
        from plumbline.reference_broker.nats.jetstream.files.recovery import recover

        write_queue = self.config.write_queue
        return recover(self, write_queue, files, now) if write_queue is not None else []

    # host.Service

    def handles_subject(self, subject: bytes) -> bool:
        return subject.startswith(_SYSTEM) or self.find_stream(subject) is not None

    def on_message(
        self, subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes, now: int
    ) -> bool:
        """A message that a client published. True if somebody here answered for it."""
        self.now = now
        if now >= self.timers.due:
            self.timers.run(now)
        stream = self._capturing.get(subject)
        if stream is None:
            stream = self.find_stream(subject)
        if stream is not None:
            stream.publish(subject, reply, header_block, payload, now)
        if subject.startswith(_RESERVED) and self.command(subject, reply, header_block, payload, now):
            return True
        return stream is not None

    def on_subscribed(self, subject: bytes, now: int) -> None:
        self.on_interest_changed(subject, now)

    def on_unsubscribed(self, subject: bytes, now: int) -> None:
        self.on_interest_changed(subject, now)

    def on_interest_changed(self, subject: bytes, now: int) -> None:
        self.now = now
        for consumer in tuple(self.targets.get(subject, ())):
            consumer.on_interest_changed(now)

    def wake(self, now: int) -> None:
        self.now = now
        self.timers.run(now)

    def next_wake(self) -> int | None:
        return self.timers.next()

    # Push consumers

    def watch_interest(self, consumer: PushDelivery) -> None:
        """The consumer gets notice of who subscribes to its deliver_subject."""
        self.targets.setdefault(consumer.target, []).append(consumer)

    def unwatch_interest(self, consumer: PushDelivery) -> None:
        others = [one for one in self.targets.pop(consumer.target, ()) if one is not consumer]
        if others:
            self.targets[consumer.target] = others

    # Routing

    def find_stream(self, subject: bytes) -> Stream | None:
        """The stream that captures ``subject``; there is at most one."""
        first_token = subject.partition(b".")[0]
        if first_token not in self._first_tokens and not self._first_tokens & _WILDCARDS:
            return None
        if subject in self._capturing:
            return self._capturing[subject]
        found = None
        for stream in self.streams.values():
            if any(covers(pattern, subject) for pattern in stream.config.patterns):
                found = stream
        if (
            len(self._capturing) >= _MAX_CACHED_SUBJECTS
        ):  # many subjects seen once must not hold memory for ever
            self._capturing.clear()
        self._capturing[subject] = found
        return found

    def on_streams_changed(self) -> None:
        """A stream was made, changed or deleted: subjects may go elsewhere now."""
        copying.connect(self)
        self._capturing.clear()
        self.host.forget_routes()
        self._first_tokens = {
            pattern.partition(b".")[0]
            for stream in self.streams.values()
            for pattern in stream.config.patterns
        }

    def command(
        self, subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes, now: int
    ) -> bool:
        if self._domain_prefix is not None and subject.startswith(self._domain_prefix):
            subject = _RESERVED + subject[len(self._domain_prefix) - len(b"API.") :]
        if subject.startswith(_ACK):
            return self.acknowledge(subject, reply, payload, now)
        if subject.startswith(_NEXT):
            return self.pull(subject[len(_NEXT) :], reply, payload, now)
        if subject.startswith(FLOW_CONTROL):
            return self.answer_flow_control(subject, header_block, now)
        if subject.startswith(_SNAPSHOT):
            return self.snapshots.on_message(subject, reply, payload, now)
        if subject.startswith(_API):
            return self.api.request(subject[len(_API) :], reply, header_block, payload, now)
        return False

    def find_consumer(self, stream: bytes, consumer: bytes) -> Consumer | None:
        found = self.streams.get(stream.decode("utf-8", "replace"))
        return found.consumers.get(consumer.decode("utf-8", "replace")) if found else None

    def acknowledge(self, subject: bytes, reply: bytes | None, payload: bytes, now: int) -> bool:
        """False if no consumer listens on this ack subject."""
        parsed = AckSubjectFields.parse(subject)
        consumer = self.find_consumer(parsed.stream, parsed.consumer) if parsed else None
        if parsed is None or consumer is None or not self.has_ack_subject(consumer):
            return False
        consumer.acknowledged(parsed, reply, payload, now)
        return True

    def has_ack_subject(self, consumer: Consumer) -> bool:
        if consumer.config.ack_policy == "none":
            return not self.rules.ack_none_gets_503
        return consumer.config.ack_policy != "flow_control"

    def pull(self, names: bytes, reply: bytes | None, body: bytes, now: int) -> bool:
        """A pull request. False if it finds no consumer, so that the client gets 503."""
        stream, _, name = names.partition(b".")
        consumer = self.find_consumer(stream, name)
        if consumer is None:
            return not self.rules.missing_consumer_gets_503
        if consumer.config.is_pull:
            consumer.pull(reply, body, now)
        elif reply is not None:
            self.refuse_pull(consumer, reply, CONSUMER_IS_PUSH_BASED)
        return True

    def answer_flow_control(self, subject: bytes, header_block: bytes, now: int) -> bool:
        """A message on ``$JS.FC.<stream>.<consumer>.<token>``. False if no consumer listens there."""
        names = subject[len(FLOW_CONTROL) :].split(b".")
        consumer = self.find_consumer(names[0], names[1]) if len(names) == 3 else None
        if consumer is None or consumer.window is None:
            return False
        consumer.on_flow_reply(subject, header_block, now)
        return True

    def refuse_pull(self, consumer: Consumer, reply: bytes, status: Status) -> None:
        consumer.waiting.send(reply, status)

    # Names and advisories

    def new_name(self, length: int) -> str:
        """Of a consumer without a name (8 characters), or an advisory's id (22)."""
        return "".join(self.config.random.choices(_ALPHABET, k=length))

    def has_listeners(self, subject: str) -> bool:
        """Whether an event has a subscriber; without one it need not be made."""
        target = subject.encode()
        return self.host.has_interest(target) or self.find_stream(target) is not None

    def advise(self, subject: str, kind: str, fields: dict[str, Any], now: int) -> None:
        """Publish an event to whoever listens, streams included."""
        if not self.has_listeners(subject):
            return
        target = subject.encode()
        stream = self.find_stream(target)
        head = {"type": f"io.nats.jetstream.{kind}", "id": self.new_name(22), "timestamp": format_time(now)}
        domain = {"domain": self.config.domain} if self.config.domain else {}
        payload = self.encode({**head, **fields, **domain})
        self.host.publish(target, None, b"", payload)
        if stream is not None:
            stream.publish(target, None, b"", payload, now)

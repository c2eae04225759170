"""Conversations for audits: what clients and servers say, entered in one audit in the order of the calls."""

from __future__ import annotations

import itertools
import json
from typing import Any

from plumbline.monitors import Observation
from plumbline.monitors.histories import Judgement
from plumbline.pipeline.audit.amqp import AmqpAuditor
from plumbline.pipeline.audit.delivery_audit import DeliveryAudit, ReceiverAudit, audit
from plumbline.pipeline.audit.nats import NatsAuditor
from plumbline.wire import nats
from plumbline.wire.amqp import Method
from plumbline.wire.sender import Sender

STORED_AT = 1_000  # ns; conversations begin then, and a millisecond passes with every operation
_MILLISECOND = 1_000_000


class Conversations:
    """Any number of connections, and the delivery audit of their messages."""

    def __init__(self) -> None:
        self.entries = DeliveryAudit()
        self.clock = itertools.count(STORED_AT, _MILLISECOND)

    def nats(self, name: str) -> NatsConversation:
        return NatsConversation(name, self)

    def amqp(self, name: str) -> AmqpConversation:
        return AmqpConversation(name, self)

    def audited(self) -> list[ReceiverAudit]:
        return audit(self.entries)

    def judged(self) -> Judgement:
        """Of the only receiver."""
        (one,) = self.audited()
        return one.judgement


class NatsConversation:
    """One connection; text as on the wire, line ends and sizes filled in."""

    def __init__(self, name: str, among: Conversations) -> None:
        self.auditor = NatsAuditor(name, among.entries)
        self._name, self._among, self._numbers = name, among, itertools.count(1)

    def observe(self, *operations: nats.Operation, by: Sender) -> None:
        for operation in operations:
            at = next(self._among.clock)
            self.auditor.observe(Observation(operation, by, self._name, next(self._numbers), at))

    def client(self, *operations: nats.Operation) -> None:
        self.observe(*operations, by=Sender.CLIENT)

    def server(self, *operations: nats.Operation) -> None:
        self.observe(*operations, by=Sender.SERVER)

    def publish(self, text: str, seq: int | None = None, subject: str = "o.x") -> None:
        """Into stream S; ``seq`` None: no answer came."""
        inbox = f"_INBOX.p.{next(self._numbers)}"
        self.client(nats.Pub.make(subject, text.encode(), inbox))
        if seq is not None:
            self.server(nats.Msg.make(inbox, 1, json.dumps({"stream": "S", "seq": seq}).encode()))

    def refused(self, text: str, subject: str = "o.x") -> None:
        """Into stream S, which answers with an error."""
        inbox = f"_INBOX.p.{next(self._numbers)}"
        self.client(nats.Pub.make(subject, text.encode(), inbox))
        answer = {"error": {"code": 503, "err_code": 10077, "description": "maximum messages exceeded"}}
        self.server(nats.Msg.make(inbox, 1, json.dumps(answer).encode()))

    def deliver(
        self, text: str, seq: int, consumer_seq: int, delivered: int = 1, stored: int = STORED_AT,
        subject: str = "o.x",
    ) -> str:  # fmt: skip
        """By consumer C of stream S; gives the subject that acknowledges it."""
        reply = f"$JS.ACK.S.C.{delivered}.{seq}.{consumer_seq}.{stored}.0"
        self.server(nats.Msg.make(subject, 2, text.encode(), reply))
        return reply

    def delivered(self, text: str, seq: int, consumer_seq: int, ack: bytes = b"+ACK") -> None:
        """Delivered, and acknowledged."""
        self.client(nats.Pub.make(self.deliver(text, seq, consumer_seq), ack))

    def nothing_left(self) -> None:
        """A pull request that is answered 404."""
        self.client(nats.Pub.make("$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"batch":1,"no_wait":true}', "_INBOX.n"))
        self.server(nats.HMsg.make("_INBOX.n", 2, b"NATS/1.0 404 No Messages\r\n\r\n", b""))


class AmqpConversation:
    """One connection with one channel."""

    def __init__(self, name: str, among: Conversations) -> None:
        self.auditor = AmqpAuditor(name, among.entries)
        self._name, self._among, self._numbers = name, among, itertools.count(1)
        self.server("channel.open-ok")

    def observe(self, by: Sender, method: str, body: bytes | None = None, **arguments: Any) -> None:
        properties: dict[str, Any] | None = {} if body is not None else None
        operation = Method.make(method, 1, properties=properties, body=body or b"", **arguments)
        at = next(self._among.clock)
        self.auditor.observe(Observation(operation, by, self._name, next(self._numbers), at))

    def client(self, method: str, body: bytes | None = None, **arguments: Any) -> None:
        self.observe(Sender.CLIENT, method, body, **arguments)

    def server(self, method: str, body: bytes | None = None, **arguments: Any) -> None:
        self.observe(Sender.SERVER, method, body, **arguments)

    def publish(self, text: str, routing_key: str = "q", exchange: str = "") -> None:
        self.client(
            "basic.publish", text.encode(), exchange=exchange, routing_key=routing_key, mandatory=True
        )

    def confirm(self, tag: int, kind: str = "ack") -> None:
        self.server(f"basic.{kind}", delivery_tag=tag, multiple=False)

    def consume(self, queue: str = "q") -> None:
        self.client("basic.consume", queue=queue, consumer_tag="c")
        self.server("basic.consume-ok", consumer_tag="c")

    def deliver(
        self, text: str, tag: int, *, again: bool = False, routing_key: str = "q", exchange: str = ""
    ) -> None:
        self.server(
            "basic.deliver", text.encode(), consumer_tag="c", delivery_tag=tag, redelivered=again,
            exchange=exchange, routing_key=routing_key,
        )  # fmt: skip

    def delivered(self, text: str, tag: int, *, again: bool = False) -> None:
        """Delivered, and acknowledged."""
        self.deliver(text, tag, again=again)
        self.client("basic.ack", delivery_tag=tag, multiple=False)

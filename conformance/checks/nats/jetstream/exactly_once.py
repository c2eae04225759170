"""A producer and a consumer that fail on purpose, and the history that ``monitors.histories`` judges.

The producer publishes unique payloads with message ids, loses acknowledgements with its connection, and tries
again. The consumer acknowledges with a reply (double ack), and crashes between a delivery and its
acknowledgement, and between that and its reply.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import count

from plumbline.conformance.nats.connection import NatsConnection
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.nats.stage import JetStreamStage
from plumbline.conformance.outcomes import Failed
from plumbline.monitors.histories import (
    History,
    HistoryDelivery,
    PublishAttempt,
    PublishOutcome,
    Settlement,
    judge_history,
)
from plumbline.wire.nats import HMsg, HPub, Msg, Pub, Sub
from plumbline.wire.nats.jetstream import AckSubject, PullRequest, next_subject

MESSAGE_ID = "Nats-Msg-Id"
ACK_WAIT_NS = 300_000_000
PULL_NS = 1_000_000_000
CRASH_EVERY = 3  # every so manyth publish loses its answer, every so manyth delivery its client
MOST_PULLS = 60
ANSWER_S = 5.0

Connect = Callable[[str], NatsConnection]


class EndToEnd:
    """One stream, one producer and one consumer; ``connect`` opens connections, also after a restart."""

    def __init__(
        self, session: NatsSession, stage: JetStreamStage, connect: Connect, *, storage: str
    ) -> None:
        self.session = session
        self.connect = connect
        self.subject = session.name("once")
        self.stream = stage.stream("ONCE", [self.subject], storage=storage)
        self.consumer = stage.consumer(self.stream, "D", ack_wait=ACK_WAIT_NS)
        self.published: list[PublishAttempt] = []
        self.delivered: list[HistoryDelivery] = []
        self._numbers = count(1)
        self._clients = count(1)
        self._unanswered: list[str] = []
        self._puback = self._pulled = self._acked = ""

    # The producer

    def publish(self, messages: int) -> None:
        """Publish ``messages`` new messages, and some of them twice; what had no answer stays unanswered."""
        client = self._producer()
        for _ in range(messages):
            number = next(self._numbers)
            name = f"m{number}"
            if number % CRASH_EVERY:
                self._publish(client, name)
                continue
            self._send(client, name)  # and is gone before it could learn of it
            client.close()
            self.published.append(PublishAttempt(name, PublishOutcome.UNKNOWN))
            self._unanswered.append(name)
            client = self._producer()
        client.close()

    def retry(self) -> None:
        """Publish again what had no answer: it may be in the stream, or not."""
        client = self._producer()
        for name in self._unanswered:
            self._publish(client, name)
        self._unanswered.clear()
        client.close()

    def _producer(self) -> NatsConnection:
        self._puback = self._new_inbox("puback")
        client = self.connect("producer")
        client.send(Sub.make(self._puback, 1))
        return client

    def _new_inbox(self, label: str) -> str:
        """Of one client alone: what the server still says to one that is gone reaches no later one."""
        return self.session.inbox(f"{label}{next(self._clients)}")

    def _send(self, client: NatsConnection, name: str) -> None:
        client.send(HPub.make(self.subject, [(MESSAGE_ID, name)], name.encode(), self._puback))

    def _publish(self, client: NatsConnection, name: str) -> None:
        self._send(client, name)
        answer = client.expect(Msg, subject=self._puback, within=ANSWER_S)
        fields = json.loads(answer.payload)
        if "error" in fields or "seq" not in fields:
            raise Failed(f"{name} was refused", expected="a PubAck", actual=str(answer))
        self.published.append(PublishAttempt(name))

    # The consumer

    def consume(self, deliveries: int) -> None:
        """Take so many deliveries, with crashes between."""
        client = self._consumer()
        for number in range(deliveries):
            message = self._pull(client)
            if message is None:
                raise Failed(
                    "no message", expected=f"{deliveries} deliveries", actual=f"{number}, then a status"
                )
            crash = number % CRASH_EVERY
            if crash == 0:  # before the acknowledgement
                self._took(message, Settlement.OPEN)
            elif crash == 1:  # before its reply
                client.send(self._ack(message))
                self._took(message, Settlement.UNKNOWN)
            else:
                self._confirm(client, message)
                continue
            client.close()
            client = self._consumer()
        client.close()

    def drain(self, stage: JetStreamStage) -> None:
        """Take and confirm everything that is left. Raises ``Failed`` if it does not come to an end."""
        client = self._consumer()
        for _ in range(MOST_PULLS):
            info = stage.consumer_info(self.stream, self.consumer)
            if not info["num_pending"] and not info["num_ack_pending"]:
                client.close()
                return
            message = self._pull(client)
            if message is not None:
                self._confirm(client, message)
        raise Failed(
            "the consumer does not come to an end",
            expected="num_pending 0 and num_ack_pending 0",
            actual=f"num_pending {info['num_pending']}, num_ack_pending {info['num_ack_pending']}",
        )

    def _consumer(self) -> NatsConnection:
        self._pulled, self._acked = self._new_inbox("pull"), self._new_inbox("acked")
        client = self.connect("consumer")
        client.send(Sub.make(self._pulled, 1), Sub.make(self._acked, 2))
        return client

    def _pull(self, client: NatsConnection) -> Msg | HMsg | None:
        """The next message; None for a status."""
        body = PullRequest(batch=1, expires=PULL_NS).encode()
        client.send(Pub.make(next_subject(self.stream, self.consumer), body, self._pulled))
        answer = client.arrival(ANSWER_S, "a message or a status").operation
        if not isinstance(answer, Msg | HMsg):
            raise Failed("no message", expected="a message or a status", actual=str(answer))
        return answer if answer.reply is not None else None

    def _ack(self, message: Msg | HMsg) -> Pub:
        return Pub.make(message.reply or "", b"+ACK", self._acked)

    def _confirm(self, client: NatsConnection, message: Msg | HMsg) -> None:
        """Acknowledge, and hear that this was taken."""
        client.send(self._ack(message))
        client.expect(Msg, subject=self._acked, payload=b"", within=ANSWER_S)
        self._took(message, Settlement.CONFIRMED)

    def _took(self, message: Msg | HMsg, settlement: Settlement) -> None:
        position = AckSubject.parse(message.reply or "").stream_seq
        self.delivered.append(HistoryDelivery(message.payload.decode(), position, settlement))

    # The judgement

    def judge(self) -> None:
        """Raises ``Failed`` if anything was lost, stored twice, made up, or came after its confirmation."""
        self._judge(self.delivered)

    def judge_with_redeliveries(self) -> None:
        """The same, but that a message may come again after its confirmation, from where it was stored."""
        best: dict[tuple[str, int | None], HistoryDelivery] = {}
        for one in self.delivered:
            known = best.setdefault((one.id, one.position), one)
            if known.settlement is not Settlement.CONFIRMED:
                best[one.id, one.position] = one
        self._judge(best.values())

    def _judge(self, delivered: Iterable[HistoryDelivery]) -> None:
        judgement = judge_history(History(tuple(self.published), tuple(delivered)))
        self.session.require(
            not judgement.has_fault and judgement.ok,
            "exactly once was not kept",
            expected="every message is delivered, and none again after its ack was confirmed",
            actual=str(judgement),
        )

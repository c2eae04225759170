"""Facts: the meaning of NATS operations, given the earlier operations of their connection.

A reader (``nats_reader``) makes facts from operations; monitors judge them; pipelines keep them as tables.
Facts of one connection are in its order. Subjects, names, sizes and checksums: a fact holds no payload.
"""

from __future__ import annotations

from plumbline.monitors.facts import Fact, StreamFact
from plumbline.monitors.observation import Place


class ClientConnected(Fact, frozen=True, kw_only=True):
    """CONNECT was seen, so all that the client ever asked for on this connection is seen too."""

    library: str = ""  # CONNECT lang and version, CONNECT name: "python3 2.10.0"
    name: str = ""


class Subscribed(Fact, frozen=True, kw_only=True):
    """SUB."""

    sid: str
    subject: str
    queue: str = ""


class Unsubscribed(Fact, frozen=True, kw_only=True):
    """UNSUB; ``max_msgs`` None: at once."""

    sid: str
    max_msgs: int | None


class Pinged(Fact, frozen=True, kw_only=True):
    """The client's PING."""


class Ponged(Fact, frozen=True, kw_only=True):
    """The server's PONG: it has read all that the client sent before the PING."""


class MessageReceived(Fact, frozen=True, kw_only=True):
    """MSG or HMSG. ``delivery``: its reply subject is an acknowledgement subject of JetStream."""

    sid: str
    subject: str
    size: int
    status: int | None = None
    delivery: bool = False


class JetStreamDelivery(StreamFact, frozen=True, kw_only=True):
    """A message of a consumer, by its acknowledgement subject (ADR-15). ``timestamp`` in ns since 1970;
    ``checksum`` of the payload, None if it was left out (headers_only)."""

    sid: str
    subject: str
    consumer: str
    delivered: int
    stream_seq: int
    consumer_seq: int
    timestamp: int
    pending: int
    size: int
    checksum: int | None = None


class PullRequested(StreamFact, frozen=True, kw_only=True):
    """A pull request, or +NXT which is one. Durations in nanoseconds. ``sid`` hears the answer."""

    consumer: str
    inbox: str
    sid: str | None
    batch: int
    expires: int = 0
    no_wait: bool = False
    max_bytes: int = 0
    idle_heartbeat: int = 0


class PullStatus(Fact, frozen=True, kw_only=True):
    """A status on a pull request's inbox. ``pending``: its Nats-Pending-Messages."""

    sid: str
    inbox: str
    code: int
    description: str
    pending: int | None = None


class JetStreamAck(StreamFact, frozen=True, kw_only=True):
    """The client acknowledged a delivery; ``kind`` is the payload's first word, empty if it is unknown."""

    consumer: str
    delivered: int
    stream_seq: int
    consumer_seq: int
    kind: str
    reply: str = ""


class AckConfirmed(StreamFact, frozen=True, kw_only=True):
    """The server answered an acknowledgement that had a reply subject: a double ack is confirmed."""

    consumer: str
    stream_seq: int
    consumer_seq: int
    kind: str
    requested_at: Place


class NatsPublish(Fact, frozen=True, kw_only=True):
    """The client published a message, no request to JetStream's API and no acknowledgement."""

    subject: str
    reply: str = ""
    msg_id: str = ""
    size: int = 0


class PublishStored(StreamFact, frozen=True, kw_only=True):
    """A PubAck came. ``checksum`` of the payload that was published, None if another one may be stored.
    ``msg_id``: its Nats-Msg-Id; empty if it had none, or is part of a batch."""

    seq: int
    duplicate: bool
    requested_at: Place
    checksum: int | None = None
    msg_id: str = ""


class MessageRead(StreamFact, frozen=True, kw_only=True):
    """The answer to STREAM.MSG.GET or DIRECT.GET is a message. ``checksum`` of its payload."""

    seq: int
    checksum: int
    requested_at: Place


class StreamStated(StreamFact, frozen=True, kw_only=True):
    """The answer of the API that has a stream's configuration. ``duplicate_window`` in nanoseconds."""

    duplicate_window: int
    requested_at: Place


class ConsumerStated(StreamFact, frozen=True, kw_only=True):
    """The answer of the API that has a consumer's state. ``created``: when it was made, as stated;
    ``leader``: the server that states it, empty without a cluster; ``ack_floor``: the stream sequence."""

    consumer: str
    created: str
    leader: str
    ack_floor: int
    requested_at: Place


class AssetChanged(StreamFact, frozen=True, kw_only=True):
    """A request that makes, changes or removes a stream or a consumer: counters may start again."""

    verb: str  # "CONSUMER.DELETE"
    consumer: str | None = None

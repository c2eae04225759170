"""The tables of the pipeline as they are written: each column's name, type, unit and meaning.

One source for Spark and for Arrow (``spark_schema``, ``arrow_schema``) and for people (``describe``). A table
is what ``plumbline judge`` leaves as Parquet, partitioned by ``day`` and ``capture`` where it has them.

Rows are found again by ``connection`` and ``number``: the operations of a connection count from 1, both
directions together, as ``plumbline show`` counts them. ``frame`` is the packet that completed the operation,
counted from 1 in its file, as Wireshark counts it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

# The types that columns have. Unsigned numbers of the wire that no signed 64 bits hold are null.
TEXT, LONG, INT, BOOL, BYTES, DATE = "string", "bigint", "int", "boolean", "binary", "date"
TIME = "timestamp"  # microseconds, UTC
TEXTS, LONGS = "array<string>", "array<bigint>"
PLACES = "array<place>"  # of operations: structs of connection, number, time_ns, text
NANOSECONDS, BYTE_COUNT, NO_UNIT = "ns", "bytes", ""


class Column(Struct, frozen=True):
    """One column. ``type`` is one of the names above, ``unit`` empty where there is none to say."""

    name: str
    type: str
    meaning: str
    unit: str = NO_UNIT


class Table(Struct, frozen=True):
    """One table. Its partition columns are among its columns, last."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    partitions: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def without(self, *names: str) -> Table:
        """This table, lacking those columns."""
        columns = tuple(column for column in self.columns if column.name not in names)
        partitions = tuple(name for name in self.partitions if name not in names)
        return Table(self.name, self.meaning, columns, partitions)


_PARTITIONS = (
    Column("day", DATE, "the UTC day of time"),
    Column("capture", TEXT, "the capture file, as it is named below the folder that was judged"),
)
_BY_DAY_AND_CAPTURE = ("day", "capture")
_TIME = (
    Column("time", TIME, "when the packet was recorded", "UTC"),
    Column("time_ns", LONG, "the same, exact", "ns since 1970"),
)
_PAYLOAD = (
    Column("payload_size", LONG, "payload or body, without headers", BYTE_COUNT),
    Column("payload_hash", TEXT, "BLAKE2b, 128 bits, of payload or body, hexadecimal; null if none"),
    Column("payload", BYTES, "payload or body itself; null unless --payloads", BYTE_COUNT),
)
_WHERE = (
    Column("connection", LONG, "number of the connection, as plumbline show gives it"),
    Column("number", LONG, "of the operation in its connection, from 1"),
    Column("frame", LONG, "the packet of the file that completed it, from 1"),
    *_TIME,
    Column("protocol", TEXT, "nats or amqp; empty if not known"),
    Column("client", TEXT, "address of who opened the connection, host:port"),
    Column("server", TEXT, "address of who was connected to, host:port"),
    Column("library", TEXT, "client library and version, once the client has sent them"),
)

PACKETS = Table(
    "packets",
    "TCP segments of the captures, one a row. Packets that carry no TCP are not among them.",
    (
        Column("frame", LONG, "number of the packet in its file, from 1"),
        Column(
            "file", INT, "place of its file among those that are read, from 0: order is by file, then frame"
        ),
        *_TIME,
        Column("source", TEXT, "sender, host:port"),
        Column("target", TEXT, "receiver, host:port"),
        Column("seq", LONG, "TCP sequence number of the first byte"),
        Column("ack", LONG, "TCP acknowledgement number"),
        Column("flags", INT, "TCP flags: 1 FIN, 2 SYN, 4 RST, 8 PSH, 16 ACK"),
        Column("size", LONG, "TCP payload in the capture", BYTE_COUNT),
        Column("missing", LONG, "TCP payload that was on the wire and is not in the capture", BYTE_COUNT),
        Column("comments", TEXTS, "packet comments of pcapng; null if there are none"),
        Column("payload", BYTES, "TCP payload; in judged tables null unless --payloads", BYTE_COUNT),
        *_PARTITIONS,
    ),
    _BY_DAY_AND_CAPTURE,
)

OPERATIONS = Table(
    "operations",
    "All that crossed the wire, decoded: a NATS line with its payload, an AMQP method with its content. "
    "number 0 is a remark, no operation: opened, closed, reset, lost, undecodable, entered, note.",
    (
        *_WHERE,
        Column("sender", TEXT, "client or server; null for remarks that concern both"),
        Column("op", TEXT, "the specification's name: PUB, HMSG, basic.deliver; or the remark's"),
        Column("text", TEXT, "the text of a remark; null for operations"),
        Column("size", LONG, "the operation's bytes on the wire, frames included", BYTE_COUNT),
        Column("subject", TEXT, "NATS subject; AMQP routing_key"),
        Column("reply", TEXT, "NATS reply subject; AMQP property reply_to"),
        Column("sid", TEXT, "NATS subscription id"),
        Column("queue", TEXT, "NATS queue group; AMQP queue (of a delivery: what its consumer consumes)"),
        Column("channel", INT, "AMQP channel"),
        Column("exchange", TEXT, "AMQP exchange"),
        Column("consumer_tag", TEXT, "AMQP consumer tag; empty for basic.get-ok"),
        Column("delivery_tag", LONG, "AMQP delivery tag"),
        Column("multiple", BOOL, "AMQP acknowledgement of everything up to its tag"),
        Column("redelivered", BOOL, "AMQP redelivered; JetStream: delivered > 1"),
        Column(
            "message_id",
            TEXT,
            "Nats-Msg-Id, of a PubAck that of its publish; AMQP property message_id; null if there is none",
        ),
        Column("status", INT, "NATS status of headers (100, 404, ...); AMQP reply_code"),
        Column("description", TEXT, "the text after the status code"),
        Column("stream", TEXT, "JetStream stream, of deliveries, acknowledgements, pull requests, PubAcks"),
        Column("domain", TEXT, "JetStream domain; empty if the operation names none"),
        Column("consumer", TEXT, "JetStream consumer"),
        Column("delivered", LONG, "JetStream delivery count, from 1"),
        Column("stream_seq", LONG, "JetStream stream sequence; of consumer-info the ack floor"),
        Column("consumer_seq", LONG, "JetStream consumer sequence"),
        Column("stored_ns", LONG, "when the stream stored it, server's clock", "ns since 1970"),
        Column("pending", LONG, "messages the consumer had left; of a status: Nats-Pending-Messages"),
        Column("kind", TEXT, "of acknowledgements and confirms: +ACK -NAK +WPI +TERM +NXT, ack nack reject"),
        Column("duplicate", BOOL, "of PubAcks: the message was there already"),
        Column("batch", LONG, "of pull requests: messages asked for"),
        Column("expires_ns", LONG, "of pull requests: 0 if not given", NANOSECONDS),
        Column("no_wait", BOOL, "of pull requests"),
        Column("max_bytes", LONG, "of pull requests: 0 if not given", BYTE_COUNT),
        Column("idle_heartbeat_ns", LONG, "of pull requests: 0 if not given", NANOSECONDS),
        Column(
            "fact",
            TEXT,
            "what it means where its name does not say: delivery, ack, ack-answer, pull, pull-status, "
            "publish, publish-answer, return, read, consumer-info, administration; null for the rest",
        ),
        Column(
            "answers",
            LONGS,
            "numbers of earlier operations of this connection that it settles: of an ack the deliveries, of "
            "a confirm, PubAck or basic.return the publishes, of a pull's status the pull, of a pulled "
            "delivery the pull it counts for; null if there are none or they were not seen",
        ),
        *_PAYLOAD,
        *_PARTITIONS,
    ),
    _BY_DAY_AND_CAPTURE,
)

DELIVERIES = Table(
    "deliveries",
    "Messages that a JetStream consumer or an AMQP queue delivered, each with its first final "
    "acknowledgement on the same connection.",
    (
        *_WHERE,
        Column("subject", TEXT, "NATS subject; AMQP routing_key"),
        Column("stream", TEXT, "JetStream stream; null for AMQP"),
        Column("consumer", TEXT, "JetStream consumer; AMQP consumer tag, empty for basic.get-ok"),
        Column("queue", TEXT, "AMQP queue, if basic.consume was seen; null for NATS"),
        Column("exchange", TEXT, "AMQP exchange; null for NATS"),
        Column("channel", INT, "AMQP channel; null for NATS"),
        Column("sid", TEXT, "NATS subscription id; null for AMQP"),
        Column("redelivered", BOOL, "AMQP redelivered; JetStream: delivered > 1"),
        Column("delivered", LONG, "JetStream delivery count, from 1; null for AMQP"),
        Column("stream_seq", LONG, "JetStream stream sequence; null for AMQP"),
        Column("consumer_seq", LONG, "JetStream consumer sequence; null for AMQP"),
        Column("delivery_tag", LONG, "AMQP delivery tag; null for NATS"),
        Column("pending", LONG, "messages the JetStream consumer had left; null for AMQP"),
        Column("stored_ns", LONG, "when the stream stored it, server's clock", "ns since 1970"),
        Column("latency_ns", LONG, "stored_ns to time_ns: two clocks, can be negative", NANOSECONDS),
        Column("pull", LONG, "number of the pull request it counts for, same connection; null if none"),
        Column("message_id", TEXT, "Nats-Msg-Id; AMQP property message_id; null if there is none"),
        *_PAYLOAD,
        Column(
            "ack_kind",
            TEXT,
            "+ACK -NAK +TERM +NXT, ack nack reject; null if none was seen",
        ),
        Column("ack_number", LONG, "number of that operation, same connection"),
        Column("ack_time_ns", LONG, "when it was sent", "ns since 1970"),
        Column("ack_lag_ns", LONG, "from the delivery to it", NANOSECONDS),
        *_PARTITIONS,
    ),
    _BY_DAY_AND_CAPTURE,
)

PULLS = Table(
    "pulls",
    "JetStream pull requests (+NXT among them), each with what came for it.",
    (
        *_WHERE,
        Column("stream", TEXT, "JetStream stream"),
        Column("consumer", TEXT, "JetStream consumer"),
        Column("reply", TEXT, "the inbox that receives the answer"),
        Column("sid", TEXT, "the subscription that receives it; null if it was not captured"),
        Column("batch", LONG, "messages asked for"),
        Column("expires_ns", LONG, "0 if not given", NANOSECONDS),
        Column("no_wait", BOOL, "answer at once"),
        Column("max_bytes", LONG, "0 if not given", BYTE_COUNT),
        Column("idle_heartbeat_ns", LONG, "0 if not given", NANOSECONDS),
        Column("messages", LONG, "deliveries that count for it, as the rule batch-is-the-limit counts"),
        Column("bytes", LONG, "payload of these", BYTE_COUNT),
        Column("first_lag_ns", LONG, "from the request to the first of these; null if none", NANOSECONDS),
        Column("status", INT, "the status that ended it; null if none was seen"),
        Column("description", TEXT, "the text after the status code"),
        Column("ended_lag_ns", LONG, "from the request to that status", NANOSECONDS),
        *_PARTITIONS,
    ),
    _BY_DAY_AND_CAPTURE,
)

PUBLISHES = Table(
    "publishes",
    "Messages that clients published, each with its first PubAck or confirm. Requests to the JetStream API "
    "and acknowledgements are not among them.",
    (
        *_WHERE,
        Column("subject", TEXT, "NATS subject; AMQP routing_key"),
        Column("reply", TEXT, "NATS reply subject; AMQP property reply_to"),
        Column("exchange", TEXT, "AMQP exchange; null for NATS"),
        Column("channel", INT, "AMQP channel; null for NATS"),
        Column("message_id", TEXT, "Nats-Msg-Id; AMQP property message_id; null if there is none"),
        *_PAYLOAD,
        Column("confirm", TEXT, "PubAck, ack or nack; null if none was seen"),
        Column("returned", BOOL, "basic.return came for it"),
        Column("stream", TEXT, "of the PubAck"),
        Column("stream_seq", LONG, "of the PubAck"),
        Column("duplicate", BOOL, "of the PubAck"),
        Column("confirm_time_ns", LONG, "when the confirm came", "ns since 1970"),
        Column("confirm_lag_ns", LONG, "from the publish to the confirm", NANOSECONDS),
        *_PARTITIONS,
    ),
    _BY_DAY_AND_CAPTURE,
)

VIOLATIONS = Table(
    "violations",
    "Rules that the traffic broke, each with the operation that broke it.",
    (
        *_WHERE,
        Column("rule", TEXT, "the monitor's name"),
        Column("requirements", TEXTS, "ids of what is broken"),
        Column("side", TEXT, "the side that broke the rule: server or client"),
        Column("certain", BOOL, "false where traffic that was not recorded could explain it"),
        Column("expected", TEXT, "what the rule requires"),
        Column("actual", TEXT, "what came"),
        Column("text", TEXT, "the operation as a trace writes it, its payload left out unless --payloads"),
        Column("earlier", PLACES, "operations that made it so: connection, number, time_ns, text"),
        *_PARTITIONS,
    ),
    _BY_DAY_AND_CAPTURE,
)

COMPLIANCE = Table(
    "compliance",
    "The result of each monitored requirement: one row per requirement and server.",
    (
        Column("requirement", TEXT, "its id"),
        Column("level", TEXT, "MUST, SHOULD or MAY"),
        Column("statement", TEXT, "the requirement as one sentence"),
        Column("source", TEXT, "document and section"),
        Column("server", TEXT, "address, host:port; null: none that speaks the protocol was seen"),
        Column("rules", TEXTS, "the monitors that judge it"),
        Column("side", TEXT, "the side that must meet it: server or client"),
        Column("observed", LONG, "operations that these rules judged"),
        Column("violations", LONG, "certain violations"),
        Column("possible", LONG, "violations that traffic not recorded could explain"),
        Column("verdict", TEXT, "broken, kept, or not seen: the captures have no operation for it"),
    ),
)

PROBLEMS = Table(
    "problems",
    "What could not be judged, and why. The rest was.",
    (
        Column("capture", TEXT, "the file or folder; null for what concerns the whole input"),
        Column(
            "kind",
            TEXT,
            "truncated, not-a-capture, damaged, unreadable, empty, hole, undecodable, unknown-protocol",
        ),
        Column("text", TEXT, "one sentence: what is wrong, where"),
        Column("connection", LONG, "the connection it concerns; null for a file"),
        Column("frame", LONG, "the packet at which it was noticed; null for a file"),
        Column("time_ns", LONG, "of that packet", "ns since 1970"),
        Column("bytes", LONG, "how much is concerned; null if not known", BYTE_COUNT),
    ),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (PACKETS, OPERATIONS, DELIVERIES, PULLS, PUBLISHES, VIOLATIONS, COMPLIANCE, PROBLEMS)
}


def arrow_schema(table: Table) -> pa.Schema:
    """The table as Arrow has it."""
    import pyarrow as pa

    return pa.schema([pa.field(column.name, _arrow_type(column.type)) for column in table.columns])


def spark_schema(table: Table) -> StructType:
    """The table as Spark has it; the meaning of a column is its comment."""
    from pyspark.sql.types import StructField, StructType

    return StructType(
        [
            StructField(
                column.name, _spark_type(column.type), nullable=True, metadata={"comment": _meaning(column)}
            )
            for column in table.columns
        ]
    )


def describe(table: Table) -> str:
    """The table as people read it: a line for each column."""
    widest = max(len(column.name) for column in table.columns)
    kinds = max(len(column.type) for column in table.columns)
    lines = [
        f"  {column.name:{widest}}  {column.type:{kinds}}  {_meaning(column)}" for column in table.columns
    ]
    return "\n".join([f"{table.name}: {table.meaning}", *lines])


def _meaning(column: Column) -> str:
    return f"{column.meaning} [{column.unit}]" if column.unit else column.meaning


@cache
def _arrow_type(name: str) -> Any:
    import pyarrow as pa

    if name == PLACES:
        fields = {"connection": pa.int64(), "number": pa.int64(), "time_ns": pa.int64(), "text": pa.string()}
        return pa.list_(pa.struct(list(fields.items())))
    return {
        TEXT: pa.string(), LONG: pa.int64(), INT: pa.int32(), BOOL: pa.bool_(), BYTES: pa.binary(),
        DATE: pa.date32(), TIME: pa.timestamp("us", tz="UTC"),
        TEXTS: pa.list_(pa.string()), LONGS: pa.list_(pa.int64()),
    }[name]  # fmt: skip


def _spark_type(name: str) -> Any:
    from pyspark.sql import types as T  # noqa: N812  # as the style guide of PySpark writes it

    if name == PLACES:
        place = T.StructType()
        for field in ("connection", "number", "time_ns"):
            place = place.add(field, T.LongType())
        return T.ArrayType(place.add("text", T.StringType()))
    return {
        TEXT: T.StringType(), LONG: T.LongType(), INT: T.IntegerType(), BOOL: T.BooleanType(),
        BYTES: T.BinaryType(), DATE: T.DateType(), TIME: T.TimestampType(),
        TEXTS: T.ArrayType(T.StringType()), LONGS: T.ArrayType(T.LongType()),
    }[name]  # fmt: skip

"""STREAM.SNAPSHOT and STREAM.RESTORE: a stream is sent, and taken, in pieces of an archive.

A snapshot has ``window_size`` bytes under way at most: each piece is answered on its reply subject. A
restore answers each piece, and an empty one with the stream. Source: docs.nats.io, "JetStream wire API
Reference"; subjects, bounds and time limits as observed, nats-server 2.15.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from plumbline.reference_broker.nats.jetstream import advisories, errors, subjects
from plumbline.reference_broker.nats.jetstream.api import limits
from plumbline.reference_broker.nats.jetstream.api.requests import Request, decode, is_empty, stream_of
from plumbline.reference_broker.nats.jetstream.api.streams import check_overlap, describe, state
from plumbline.reference_broker.nats.jetstream.errors import JetStreamError
from plumbline.reference_broker.nats.jetstream.streams import archive, copying
from plumbline.reference_broker.nats.jetstream.streams import config as stream_config
from plumbline.reference_broker.nats.jetstream.streams.archive import BadArchiveError
from plumbline.reference_broker.nats.jetstream.streams.config import StreamConfig
from plumbline.wire.nats.headers import Status, encode_headers
from plumbline.wire.nats.subjects import is_valid_literal
from plumbline.wire.units import SECOND

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.jetstream.service import JetStream
    from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

SUBJECTS = b"$JS.SNAPSHOT."
ACK, RESTORE = "$JS.SNAPSHOT.ACK", "$JS.SNAPSHOT.RESTORE"
KIB = 1024
CHUNK, SMALLEST_CHUNK, LARGEST_CHUNK = 128 * KIB, KIB, 1024 * KIB
WINDOW, LARGEST_WINDOW = 8 * KIB * KIB, 32 * KIB * KIB
RECEIVER_WITHIN = 2 * SECOND  # on the deliver subject
ACK_WITHIN = 5 * SECOND
PIECE_WITHIN = 5 * SECOND
DONE, NO_INTEREST, NO_FLOW = Status(204), Status(408, "No Interest"), Status(408, "No Flow Response")


class SnapshotRequest(Struct, kw_only=True):
    """The body of STREAM.SNAPSHOT; sizes in bytes, 0 for the usual."""

    deliver_subject: str = ""
    no_consumers: bool = False
    chunk_size: int = 0
    window_size: int = 0
    jsck: bool = False


class RestoreRequest(Struct, kw_only=True):
    """The body of STREAM.RESTORE: config and state as STREAM.SNAPSHOT gave them."""

    config: StreamConfig
    state: dict[str, Any] = {}


class Snapshots:
    """The snapshots and restores that are under way."""

    def __init__(self, jetstream: JetStream) -> None:
        self.jetstream = jetstream
        self._receivers: dict[bytes, Sending | Restoring] = {}

    def on_message(self, subject: bytes, reply: bytes | None, payload: bytes, now: int) -> bool:
        """A message on ``$JS.SNAPSHOT.>``. False if there is no subscriber."""
        for prefix in (subject, subject.rpartition(b".")[0].rpartition(b".")[0]):
            if (receiver := self._receivers.get(prefix)) is not None:
                receiver.on_message(reply, payload, now)
                return True
        return False

    def begin(self, receiver: Sending | Restoring) -> None:
        self._receivers[receiver.subject.encode()] = receiver

    def end(self, receiver: Sending | Restoring) -> None:
        self._receivers.pop(receiver.subject.encode(), None)
        receiver.timer.clear()


class Sending:
    """A snapshot that is sent."""

    def __init__(self, stream: Stream, asked: SnapshotRequest, now: int) -> None:
        jetstream = stream.jetstream
        self.jetstream = jetstream
        self.stream = stream.config.name
        self.target = asked.deliver_subject.encode()
        self.subject = f"{ACK}.{self.stream}.{jetstream.new_name(22)}"
        self.size = min(max(asked.chunk_size or CHUNK, SMALLEST_CHUNK), LARGEST_CHUNK)
        window = min(max(asked.window_size or WINDOW, SMALLEST_CHUNK), LARGEST_WINDOW)
        self.slots = max(window // self.size, 1)
        self.began = now
        self.sent = 0
        contents = archive.Contents.of(stream, with_consumers=not asked.no_consumers)
        self.pieces: Iterator[bytes] = contents.pieces(self.size)
        self.timer = jetstream.timers.timer(self.on_timer)
        self.had_receiver = False
        self.waits_until = now + RECEIVER_WITHIN
        self.timer.set(now)  # after the answer

    def on_timer(self, now: int) -> None:
        if self.sent:
            self.end(NO_FLOW, now)
        elif self.has_receiver() or now >= self.waits_until:
            self.had_receiver = self.has_receiver()
            self.send(now)
        else:
            self.timer.set(min(now + SECOND // 10, self.waits_until))

    def has_receiver(self) -> bool:
        """Clients subscribe when they have the answer; a wildcard that they had before is not what counts."""
        return self.jetstream.host.has_subscriber(self.target, None)

    def on_message(self, reply: bytes | None, payload: bytes, now: int) -> None:
        """A piece has arrived."""
        self.slots += 1
        self.send(now)

    def send(self, now: int) -> None:
        """As many pieces as may be under way."""
        host = self.jetstream.host
        while self.slots:
            if self.had_receiver and not self.has_receiver():
                self.end(NO_INTEREST, now)
                return
            piece = next(self.pieces)
            if len(piece) < self.size:
                if piece:
                    host.publish(self.target, None, b"", piece)
                self.end(DONE if self.sent else None, now)
                return
            self.sent += 1
            self.slots -= 1
            ack = f"{self.subject}.{len(piece)}.{self.sent}"
            host.publish(self.target, ack.encode(), b"", piece)
        self.timer.clear()
        self.timer.set(now + ACK_WITHIN)

    def end(self, status: Status | None, now: int) -> None:
        headers = b"" if status is None else encode_headers(status=status)
        self.jetstream.host.publish(self.target, None, headers, b"")
        self.jetstream.snapshots.end(self)
        reasons = {NO_INTEREST: "no interest", NO_FLOW: "no flow response"}
        error = reasons.get(status, "") if status is not None else ""
        advisories.snapshot_completed(self.jetstream, self.stream, self.began, error, now)


class Restoring:
    """A stream that comes in pieces."""

    def __init__(self, jetstream: JetStream, config: StreamConfig, now: int) -> None:
        self.jetstream = jetstream
        self.config = config
        self.subject = f"{RESTORE}.{config.name}.{jetstream.new_name(22)}"
        self.began = now
        self.data = bytearray()
        self.timer = jetstream.timers.timer(self.on_timer)
        self.timer.set(now + PIECE_WITHIN)

    def on_timer(self, now: int) -> None:
        """No piece has come for a while: it is given up."""
        self.jetstream.snapshots.end(self)

    def on_message(self, reply: bytes | None, payload: bytes, now: int) -> None:
        jetstream = self.jetstream
        if reply is None:
            jetstream.snapshots.end(self)
            advisories.restore_completed(jetstream, self.config.name, self.began, len(self.data), now)
        elif payload:
            self.data += payload
            self.timer.clear()
            self.timer.set(now + PIECE_WITHIN)
            jetstream.host.publish(reply, None, b"", b"")
        else:
            jetstream.snapshots.end(self)
            answer = self.finish(now)
            advisories.restore_completed(jetstream, self.config.name, self.began, len(self.data), now)
            jetstream.host.publish(reply, None, b"", jetstream.encode(answer))

    def finish(self, now: int) -> dict[str, Any]:
        """The answer to the last piece: the stream, or why there is none."""
        kind = {"type": "io.nats.jetstream.api.v1.stream_create_response"}
        jetstream = self.jetstream
        try:
            check_restore(jetstream, self.config)
            found = archive.contents(bytes(self.data), self.config.name)
        except BadArchiveError as error:
            return kind | {"error": errors.RESTORE_FAILED(reason=str(error)).reply()}
        except JetStreamError as error:
            return kind | {"error": error.reply()}
        stream = jetstream.streams[self.config.name] = jetstream.stream_type(jetstream, self.config, now)
        archive.fill(stream, found, now)
        jetstream.on_streams_changed()
        stream.enforce_limits(None, now)
        stream.on_age_timer(now)
        copying.catch_up(stream, now)
        return kind | describe(jetstream, stream, now)


def snapshot(jetstream: JetStream, request: Request) -> dict[str, Any]:
    """STREAM.SNAPSHOT.<stream>."""
    if is_empty(request.body):
        raise errors.BAD_REQUEST()
    stream = stream_of(jetstream, request.names[0])
    asked = decode(jetstream, request.body, SnapshotRequest)
    if not is_valid_literal(asked.deliver_subject.encode()):
        raise errors.SNAPSHOT_DELIVER_SUBJECT_INVALID()
    if stream.config.storage == "memory" and not jetstream.rules.memory_snapshots:
        raise errors.SNAPSHOT_FAILED(reason="no impl")
    shown = {"config": stream.config.echo(jetstream.rules), "state": state(stream)}
    advisories.snapshot_created(jetstream, stream.config.name, shown["state"], request.now)
    jetstream.snapshots.begin(Sending(stream, asked, request.now))
    return shown


def restore(jetstream: JetStream, request: Request) -> dict[str, Any]:
    """STREAM.RESTORE.<stream>."""
    if is_empty(request.body):
        raise errors.BAD_REQUEST()
    config = decode(jetstream, request.body, RestoreRequest).config
    if (config.name or request.names[0]) != request.names[0] or not subjects.is_asset_name(config.name):
        raise errors.STREAM_MISMATCH()
    config = stream_config.check(config, jetstream.rules)
    if config.num_replicas > 1:
        raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
    limits.check_stream(jetstream, config)
    check_restore(jetstream, config)
    restoring = Restoring(jetstream, config, request.now)
    jetstream.snapshots.begin(restoring)
    advisories.restore_created(jetstream, config.name, request.now)
    return {"deliver_subject": restoring.subject}


def check_restore(jetstream: JetStream, config: StreamConfig) -> None:
    """Raises ``JetStreamError`` where there is a stream of that name, or on its subjects."""
    if config.name in jetstream.streams:
        raise errors.STREAM_NAME_EXISTS_RESTORE_FAILED()
    check_overlap(jetstream, config)

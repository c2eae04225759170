"""Plays a scenario against a NATS server over a socket and writes the answers down, so that servers compare.

What differs from run to run (times, generated names, versions) is written as a placeholder.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec

from plumbline.wire.nats import (
    Connect,
    Decoder,
    HMsg,
    HPub,
    Info,
    Msg,
    Operation,
    Ping,
    Pong,
    Pub,
    Sender,
    Sub,
    Unsub,
)

ARRIVES_WITHIN_S = 10.0
SILENT_S = 0.5  # for a request that may have no answer
ANSWERS_WITHIN_S = 30.0  # for one that has; a busy server answers late
UNTIL_STATUS = -1
QUIET_S = 0.02  # how long nothing must come before we believe that nothing comes
PROCESSED_S = 0.05  # an ack without a reply is processed later, and no event shows when
VARYING = {
    "created",
    "ts",
    "last_active",
    "first_ts",
    "last_ts",
    "metadata",
    "cluster",
    "id",
    "timestamp",
    "ack_time",
    "pinned_client_id",
    "pinned_id",
    "pinned_ts",
    "pause_remaining",
}

_ACK_TIME = re.compile(r"(\$JS\.ACK\.\S+\.\d+\.\d+\.\d+)\.\d{19}\.(\d+)")
_FLOW = re.compile(r"(\$JS\.FC\.\S+)\.\w{4}\b")
_PIN = re.compile(r"(Nats-Pin-Id: )[^|\]]+")
_PARSER_TEXT = re.compile(r"(400 Bad Request - )(?![Hh]eartbeat|Pri|Not|Inv).*")


class Player:
    """One connection, and the ``log`` of what happened on it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port or 4222))
        self.decoder = Decoder(Sender.SERVER)
        self.arrived: list[Operation] = []
        self.log: list[str] = []
        self.requests = 0
        self.acks: list[str] = []  # reply subjects of the messages that came, in order
        self.version = ""
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1}
        self.write(Connect.make(options), Sub.make("_INBOX.p.>", 1))
        self.flush()

    def close(self) -> None:
        self.socket.close()

    # Bytes

    def write(self, *operations: Operation) -> None:
        self.socket.sendall(b"".join(operation.raw for operation in operations))

    def read(self, within: float) -> bool:
        """Take in what comes; False if nothing did."""
        self.socket.settimeout(max(within, 0.001))
        try:
            data = self.socket.recv(65536)
        except TimeoutError:
            return False
        assert data, "the server has closed the connection"
        for operation in self.decoder.feed(data):
            if isinstance(operation, Ping):
                self.write(Pong.make())
            elif isinstance(operation, Info):
                self.version = operation.fields["version"]
            else:
                self.arrived.append(operation)
        return True

    def flush(self) -> None:
        self.write(Ping.make())
        deadline = time.monotonic() + ARRIVES_WITHIN_S
        while not any(isinstance(operation, Pong) for operation in self.arrived):
            assert time.monotonic() < deadline, "no PONG"
            self.read(deadline - time.monotonic())
        self.arrived = [operation for operation in self.arrived if not isinstance(operation, Pong)]

    def take(self, count: int, within: float = ARRIVES_WITHIN_S) -> list[Msg | HMsg]:
        """``count`` messages that are no replies to requests; fewer if they do not come."""
        deadline = time.monotonic() + within
        while not self.is_complete(count) and time.monotonic() < deadline:
            self.read(deadline - time.monotonic())
        self.flush()
        while self.read(QUIET_S):
            pass
        taken = self.messages()
        self.arrived = [operation for operation in self.arrived if operation not in taken]
        return taken

    def take_until_quiet(self, quiet: float) -> list[Msg | HMsg]:
        """What comes, however slowly, until nothing came for ``quiet`` seconds."""
        while self.read(quiet):
            pass
        return self.take(0)

    def is_complete(self, count: int) -> bool:
        """Whether ``count`` messages are there; for ``UNTIL_STATUS``, whether a status is."""
        came = self.messages()
        if count != UNTIL_STATUS:
            return len(came) >= count
        return any(isinstance(one, HMsg) and one.header_block[8:9] == b" " for one in came)

    def messages(self, *, events: bool = False) -> list[Msg | HMsg]:
        """What has arrived, without the advisories; with ``events``, only those."""
        return [
            one
            for one in self.arrived
            if isinstance(one, Msg | HMsg) and one.subject.startswith("$JS.EVENT") == events
        ]

    def events(self) -> None:
        """Write down the advisories that came, but for those on the API itself, by subject."""
        self.wait(QUIET_S)
        came = self.messages(events=True)
        self.arrived = [operation for operation in self.arrived if operation not in came]
        for message in sorted(came, key=lambda message: (message.subject, settled_seq(message))):
            if message.subject != "$JS.EVENT.ADVISORY.API":
                body = msgspec.json.encode(steady(msgspec.json.decode(message.payload)), order="sorted")
                self.log.append(f"< {message.subject} {body.decode()}")

    # Steps of a scenario

    def expect(self, count: int, within: float = ARRIVES_WITHIN_S, note: str = "") -> list[str]:
        """Write down what arrives; ``count`` only ends the wait."""
        lines = []
        for message in self.take(count, within):
            if message.reply and message.reply.startswith("$JS.ACK."):
                self.acks.append(message.reply)
            lines.append(line(message))
        self.log += [f"{note}< {text}" for text in lines] or [f"{note}< nothing"]
        return lines

    def wait(self, seconds: float) -> None:
        """Let time pass; what arrives meanwhile is for the next step."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.read(left)

    def request(
        self,
        subject: str,
        body: Any = b"",
        headers: list[tuple[str, str]] | None = None,
        within: float = SILENT_S,
    ) -> Any:
        """Send with a reply inbox of its own; the reply, written down, decoded if it is JSON."""
        self.requests += 1
        inbox = f"_INBOX.p.request.{self.requests}"
        payload = body if isinstance(body, bytes) else msgspec.json.encode(body)
        sent = HPub.make(subject, headers, payload, inbox) if headers else Pub.make(subject, payload, inbox)
        self.write(sent)
        deadline = time.monotonic() + within
        while (reply := self.reply_on(inbox)) is None and time.monotonic() < deadline:
            self.read(deadline - time.monotonic())
        shown = "" if isinstance(body, bytes) else payload.decode()
        self.log.append(f"> {subject} {shown}")
        if reply is None:
            self.log.append("< silence")
            return None
        self.arrived.remove(reply)
        if isinstance(reply, HMsg) or not reply.payload.startswith(b"{"):
            self.log.append("< " + line(reply).replace(inbox, "INBOX"))
            return None
        answer = msgspec.json.decode(reply.payload)
        self.log.append("< " + msgspec.json.encode(steady(answer), order="sorted").decode())
        return answer

    def reply_on(self, inbox: str) -> Msg | HMsg | None:
        return next((one for one in self.messages() if one.args[0] == inbox.encode()), None)

    def api(self, verb: str, body: Any = b"") -> Any:
        return self.request(f"$JS.API.{verb}", body)

    def stream(self, name: str, **config: Any) -> None:
        self.api(f"STREAM.CREATE.{name}", {"name": name, "storage": "memory", **config})

    def consumer(self, stream: str, name: str, **config: Any) -> Any:
        """The answer."""
        body = {"stream_name": stream, "config": {"durable_name": name, "ack_policy": "explicit", **config}}
        return self.api(f"CONSUMER.DURABLE.CREATE.{stream}.{name}", body)

    def publish(self, subject: str, *payloads: str, headers: list[tuple[str, str]] | None = None) -> None:
        for payload in payloads:
            self.request(subject, payload.encode(), headers)

    def await_pending(self, stream: str, consumer: str, pending: int) -> None:
        """A consumer of a real server counts a new message a little later: wait for it, unlogged."""
        deadline = time.monotonic() + ARRIVES_WITHIN_S
        log, self.log = self.log, []
        while self.api(f"CONSUMER.INFO.{stream}.{consumer}")["num_pending"] != pending:
            assert time.monotonic() < deadline, f"num_pending never was {pending}"
        self.log = log

    def pull(self, stream: str, consumer: str, body: Any = b"", *, expect: int, inbox: str = "a") -> None:
        """A pull request, and what arrives: ``expect`` ends the wait."""
        self.pull_quietly(stream, consumer, body, inbox=inbox)
        self.expect(expect)

    def pull_quietly(self, stream: str, consumer: str, body: Any = b"", *, inbox: str = "a") -> None:
        payload = body if isinstance(body, bytes) else msgspec.json.encode(body)
        self.log.append(f"> pull {consumer} {payload.decode()}")
        self.write(Pub.make(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", payload, f"_INBOX.p.{inbox}"))

    def ack(self, number: int, payload: str = "", *, reply: str | None = None, expect: int = 0) -> None:
        """Acknowledge the message that came as ``number``, from 0."""
        self.log.append(f"> ack {number} {payload}")
        inbox = None if reply is None else f"_INBOX.p.{reply}"
        self.write(Pub.make(self.acks[number], payload.encode(), inbox))
        if reply is not None:
            self.expect(expect)
        else:
            self.flush()
            self.wait(PROCESSED_S)

    def subscribe(self, subject: str, sid: int, max_msgs: int | None = None) -> None:
        self.write(Sub.make(subject, sid))
        if max_msgs is not None:
            self.write(Unsub.make(sid, max_msgs))

    def unsubscribe(self, sid: int) -> None:
        self.write(Unsub.make(sid))
        self.flush()

    def state(self, stream: str, consumer: str) -> None:
        """The counters of a consumer, written as the facts page does."""
        log, self.log = self.log, []
        info = self.request(f"$JS.API.CONSUMER.INFO.{stream}.{consumer}", within=ANSWERS_WITHIN_S)
        self.log = log
        delivered, floor = info["delivered"], info["ack_floor"]
        self.log.append(
            f"= {consumer} delivered {delivered['consumer_seq']}/{delivered['stream_seq']} "
            f"ack_floor {floor['consumer_seq']}/{floor['stream_seq']} ack_pending {info['num_ack_pending']} "
            f"redelivered {info['num_redelivered']} waiting {info['num_waiting']} "
            f"pending {info['num_pending']} "
            f"active {'last_active' in delivered} {'last_active' in floor}"
        )

    def stream_state(self, stream: str) -> None:
        log, self.log = self.log, []
        state = self.api(f"STREAM.INFO.{stream}")["state"]
        self.log = [*log, f"= {stream} {msgspec.json.encode(steady(state), order='sorted').decode()}"]


def line(message: Msg | HMsg) -> str:
    """A message or status without what differs from run to run."""
    text = f"{message.subject} {message.reply or '-'}"
    if isinstance(message, HMsg):
        block = _PARSER_TEXT.sub(
            r"\1...", message.header_block.decode().replace("\r\n", "|").removesuffix("||")
        )
        block = _PIN.sub(r"\1P", block)
        text += f" [{block}]"
    text = _FLOW.sub(r"\1.TOKEN", text)
    return _ACK_TIME.sub(r"\1.T.\2", f"{text} {message.payload.decode()}")


def steady(value: Any) -> Any:
    """JSON without what differs from run to run; error texts of the JSON parser are no contract."""
    if isinstance(value, dict):
        kept = {key: steady(one) for key, one in value.items() if key not in VARYING}
        if kept.get("err_code") == 10025:
            kept["description"] = "invalid JSON"
        return kept
    if isinstance(value, list):
        return [steady(one) for one in value]
    return value


def settled_seq(message: Msg | HMsg) -> int:
    """The stream sequence that an advisory is about: servers go through them in no order."""
    seq = msgspec.json.decode(message.payload).get("stream_seq", 0)
    assert isinstance(seq, int)
    return seq


Scenario = Callable[[Player], None]

"""Turns operations into trace lines: operations to send, and patterns for received ones. Pure.

What differs from run to run is a wildcard here, and nothing else is: the time in an acknowledgement subject
is captured, of a JSON answer the fields are kept that a request decides, and of an error its numbers.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Any

from plumbline.conformance.explore.commands import STREAMS
from plumbline.wire.nats import Payload
from plumbline.wire.nats.jetstream import ACK_PREFIX

INBOX = "_INBOX."
_ESCAPED = re.compile(r'[\\{}|*"]')
_TIME_TOKEN = -2  # of an acknowledgement subject

# Of a JSON answer: the fields that are compared, where they stand.
_ANSWER = ("stream", "seq", "duplicate", "success", "purged", "name", "stream_name")
_CONFIG = (
    "name",
    "durable_name",
    "subjects",
    "retention",
    "max_msgs",
    "max_msgs_per_subject",
    "max_msg_size",
    "max_consumers",
    "discard",
    "deny_delete",
    "deny_purge",
    "first_seq",
    "deliver_policy",
    "opt_start_seq",
    "ack_policy",
    "ack_wait",
    "max_deliver",
    "backoff",
    "filter_subject",
    "max_ack_pending",
    "max_waiting",
    "max_batch",
    "headers_only",
    "idle_heartbeat",
    "flow_control",
)
_STATE = ("messages", "first_seq", "last_seq", "consumer_count")
_MESSAGE = ("subject", "seq", "data", "hdrs")
_CONSUMER = ("delivered", "ack_floor", "num_ack_pending", "num_redelivered", "num_pending")
_PAIR = ("consumer_seq", "stream_seq")
_ERROR = ("code", "err_code")
_ABSENT = "{:absent}"


class TimeCaptures:
    """The names under which a trace holds times: one for each instant."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def known(self, stamp: str) -> str | None:
        return self._names.get(stamp)

    def name(self, stamp: str) -> str:
        return self._names.setdefault(stamp, f"t{len(self._names) + 1}")


def escaped(text: str) -> str:
    """``text`` as plain text of a trace."""
    return _ESCAPED.sub(lambda match: "\\" + match[0], text)


def connection_line(connection: str, mark: str, rest: str) -> str:
    """A line of a connection; the first one has no name."""
    return f"{'' if connection == 'client' else connection}{mark} {rest}"


def sent_subject(subject: str, captures: TimeCaptures) -> str:
    """A subject as it is sent: inboxes by their words, the time of an acknowledgement by its capture."""
    if subject.startswith(INBOX):
        return "$" + subject.removeprefix(INBOX)
    if subject.startswith(ACK_PREFIX + "."):
        tokens = subject.split(".")
        tokens[_TIME_TOKEN] = "{" + captures.name(tokens[_TIME_TOKEN]) + "}"
        return ".".join(tokens)
    return subject


def expected_subject(subject: str, captures: TimeCaptures) -> str:
    """The same as a pattern: a time is captured when it comes first."""
    if not subject.startswith(ACK_PREFIX + "."):
        return sent_subject(subject, captures)
    tokens = subject.split(".")
    stamp = tokens[_TIME_TOKEN]
    known = captures.known(stamp)
    tokens[_TIME_TOKEN] = "{" + (known or f"{captures.name(stamp)}:ns") + "}"
    return ".".join(tokens)


def publish_line(
    subject: str, reply: str | None, headers: Iterable[tuple[str, str]], payload: str, *, json_body: bool
) -> str:
    """``PUB`` or ``HPUB``; a ``json_body`` has its names rewritten when it is played."""
    fields = " | ".join(f"{name}: {escaped(value)}" for name, value in headers)
    names = " ".join(part for part in (subject, reply) if part)
    if fields:
        return f"HPUB {names} | {fields} || {escaped(payload)}".rstrip()
    if json_body and payload:
        return f"PUB {names} {payload}"
    return f"PUB {names} | {escaped(payload)}".rstrip()


def pattern(operation: Payload, captures: TimeCaptures) -> str:
    """What came, as what must come."""
    sid = operation.args[1].decode()
    names = [expected_subject(operation.subject, captures), sid]
    if operation.reply is not None:
        names.append(expected_subject(operation.reply, captures))
    head = f"{operation.verb} {' '.join(names)}"
    payload = operation.payload.decode()
    if operation.headers is None:
        answer = _object(payload)
        return f"{head} | {escaped(payload)}".rstrip() if answer is None else f"{head} {_answer(answer)}"
    fields = [f"{name}: {_header_value(value, captures)}" for name, value in operation.headers.fields]
    status = operation.headers.status
    parts = [head, *([f"NATS/1.0 {status}"] if status else []), *fields]
    return " | ".join(parts) + (f" || {escaped(payload)}" if payload or not status else "")


def _header_value(value: str, captures: TimeCaptures) -> str:
    is_ack = value.startswith(f"{ACK_PREFIX}.")
    return expected_subject(value, captures) if is_ack else escaped(value)


def _object(payload: str) -> dict[str, Any] | None:
    if not payload.startswith("{"):
        return None
    found = json.loads(payload)
    return found if isinstance(found, dict) else None


def _answer(reply: Mapping[str, Any]) -> str:
    """A pattern of the answer to a request."""
    if "error" in reply:
        return _json_members({"error": _json_members(_select_fields(reply["error"], _ERROR))})
    members = {"error": _ABSENT, **_select_fields(reply, _ANSWER)}
    if "seq" in reply and "duplicate" not in reply:
        members["duplicate"] = _ABSENT
    for key, names in (("config", _CONFIG), ("state", _STATE), ("message", _MESSAGE)):
        if isinstance(reply.get(key), dict):
            fields = shown_state(reply[key]) if key == "state" else reply[key]
            members[key] = _json_members(_select_fields(fields, names) | _named_headers(fields))
    if str(reply.get("type", "")).endswith("consumer_info_response"):  # others race with what they start
        members |= {
            key: _json_members(_select_fields(value, _PAIR))
            if isinstance(value := reply[key], dict)
            else json.dumps(value)
            for key in _CONSUMER
        }
    return _json_members(members)


def shown_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """What is compared of the state of a stream.

    Of one that had no message yet servers say first_seq 0, and 1 after a restart or a consumer's end.
    """
    return {
        name: state[name] for name in _STATE if name in state and (name != "first_seq" or state["last_seq"])
    }


def _named_headers(message: Mapping[str, Any]) -> dict[str, str]:
    """Headers that name a stream are other bytes on the target, where it is called otherwise."""
    named = any(name.encode() in b64decode(message.get("hdrs", "")) for name in STREAMS)
    return {"hdrs": "{:any}"} if named else {}


def _select_fields(fields: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
    return {name: json.dumps(fields[name], separators=(",", ":")) for name in names if name in fields}


def _json_members(members: Mapping[str, str]) -> str:
    return "{" + ",".join(f'"{name}":{value}' for name, value in members.items()) + "}"

"""Replays a NATS client: translates ack subjects to those of the messages received now."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from plumbline.captures.nats.dialect import LIMITS
from plumbline.captures.redaction import MASK
from plumbline.proxy.addresses import Endpoint
from plumbline.proxy.replay.client import ReplayClient, ReplayCredentials
from plumbline.wire.nats import Connect, Decoder, HMsg, HPub, Info, Msg, Operation, Ping, Pong, Pub, Sender
from plumbline.wire.nats.secrets import SECRETS

UNCOUNTED = (Info, Ping, Pong)  # which come when time has passed


class NatsClient(ReplayClient):
    """See ``ReplayClient``."""

    greeting = "INFO"

    def __init__(self, server: Endpoint, login: ReplayCredentials) -> None:
        super().__init__(server, Decoder(Sender.SERVER, LIMITS))
        self._credentials = _credentials(login)
        self._recorded: defaultdict[str, list[str | None]] = defaultdict(list)  # replies of messages, by sid
        self._current_replies: defaultdict[str, list[str | None]] = defaultdict(list)

    def recorded(self, operation: Operation) -> None:
        if not isinstance(operation, UNCOUNTED):
            self.expected += 1
        if isinstance(operation, Msg | HMsg):
            self._recorded[operation.sid].append(operation.reply)

    def take(self, operation: Operation) -> None:
        self.is_greeted = self.is_greeted or isinstance(operation, Info)
        if isinstance(operation, Ping):
            self.send(Pong.make().raw)
        if not isinstance(operation, UNCOUNTED):
            self.received_count += 1
        if isinstance(operation, Msg | HMsg):
            self._current_replies[operation.sid].append(operation.reply)

    def translated(self, operation: Operation) -> bytes | None:
        if isinstance(operation, Pong):
            return None
        if isinstance(operation, Connect):
            return Connect.make(_with_credentials(operation.fields, self._credentials)).raw
        if isinstance(operation, Pub | HPub) and operation.subject.startswith("$JS.ACK."):
            subject = self._translated_subject(operation.subject)
            line = operation.raw[: operation.head].replace(operation.args[0], subject.encode(), 1)
            return line + operation.raw[operation.head :]
        return operation.raw

    def _translated_subject(self, subject: str) -> str:
        """The subject to which what was sent to ``subject`` is sent now."""
        for sid, replies in self._recorded.items():
            if subject in replies:
                at = len(replies) - 1 - replies[::-1].index(subject)
                now = self._current_replies[sid]
                return (now[at] if at < len(now) else None) or subject
        return subject


def _with_credentials(fields: dict[str, Any], credentials: dict[str, str]) -> dict[str, Any]:
    """CONNECT without what was masked, and with what is known."""
    masked = {name for name in fields if name in SECRETS and not set(str(fields[name])) - {chr(MASK)}}
    return {name: value for name, value in fields.items() if name not in masked} | credentials


def _credentials(login: ReplayCredentials) -> dict[str, str]:
    if not login.user:
        return {}
    if login.password is None:
        return {"auth_token": login.user}
    return {"user": login.user, "pass": login.password}

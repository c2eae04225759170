"""Writers of keys of one bucket. Each knows the last revision that it saw of a key, and updates on condition
that it is the last one still. After a refusal it reads the key.

Source: ADR-8; a bucket is a stream ``KV_<bucket>`` with the subjects ``$KV.<bucket>.>``.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from random import Random

from plumbline.cluster.history import AttemptOutcome, message_text
from plumbline.cluster.nats.answers import read_answer
from plumbline.cluster.nats.connection import Message
from plumbline.cluster.nats.keys.history import HISTORY, KeyCopy, KeyUpdate
from plumbline.cluster.nats.reading import STATUS, Requests, number_in, status_of
from plumbline.cluster.publishing import Processes
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats.jetstream import NO_MESSAGE_FOUND, STREAM_NOT_FOUND
from plumbline.wire.units import SECOND

WRITERS = 3
KEYS = 3
EVERY_S = 0.05  # each writer
ANSWERED_WITHIN_S = 3.0
RETRY_S = 0.2
VALUE = "value-"  # begins each value: none is the name of a message of the stream
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
WRONG_LAST = (10071, 10164)  # err_code: "wrong last sequence"; surely not stored
NO_RESPONDERS = b"NATS/1.0 503"


class KeyProcesses:
    """What writers and watchers share."""

    def __init__(self, processes: Processes, bucket: str) -> None:
        self.processes = processes  # of the same run
        self.bucket = bucket
        self.updates: list[KeyUpdate] = []
        self.watching = True

    @property
    def stream(self) -> str:
        return f"KV_{self.bucket}"

    def subject(self, key: str) -> str:
        return f"$KV.{self.bucket}.{key}"

    def config(self, replicas: int) -> dict[str, object]:
        """Of the stream, as ADR-8 has it."""
        return {
            "name": self.stream,
            "subjects": [self.subject(">")],
            "storage": "file",
            "max_msgs_per_subject": HISTORY,
            "discard": "new",
            "allow_rollup_hdrs": True,
            "deny_delete": True,
            "allow_direct": True,
            "num_replicas": replicas,
            "duplicate_window": 120 * SECOND,
        }


class KeyWriter:
    """One writer, one update after another."""

    def __init__(self, number: int, shared: KeyProcesses) -> None:
        self._number = number
        self._shared = shared
        self._node = number % shared.processes.nodes
        self._random = Random(f"writer {shared.processes.seed} {number}")
        self._requests: Requests | None = None
        self._revisions: dict[str, int] = {}
        self._count = 0

    async def run(self) -> None:
        """Until ``publishing`` ends."""
        try:
            while self._shared.processes.publishing:
                try:
                    if self._requests is None:
                        await self._connect()
                    else:
                        await self._update(self._requests)
                        await asyncio.sleep(EVERY_S)
                except OSError:
                    self._drop()
                    await asyncio.sleep(RETRY_S)
        finally:
            self._drop()

    async def _connect(self) -> None:
        """Raises ``OSError``."""
        url = self._shared.processes.url_of(self._node)
        if not url:
            raise ConnectionRefusedError
        requests = Requests(f"_INBOX.{self._shared.stream}.W{self._number}")
        await requests.connect(url)
        self._requests = requests

    def _drop(self) -> None:
        if self._requests is not None:
            self._requests.close()
            self._requests = None
        self._node = self._random.randrange(self._shared.processes.nodes)

    async def _update(self, requests: Requests) -> None:
        """Raises ``OSError`` if there is no answer."""
        key = f"k{self._random.randrange(KEYS)}"
        if key not in self._revisions:
            await self._read(requests, key)
            return
        self._count += 1
        update = KeyUpdate(
            key, f"{VALUE}{self._number}-{self._count}", self._revisions[key], self._node, time.monotonic_ns()
        )
        self._shared.updates.append(update)
        del self._revisions[key]  # not known until the answer
        message = await requests.message(
            self._shared.subject(key),
            update.value.encode(),
            ANSWERED_WITHIN_S,
            headers=[(EXPECTED, str(update.expected))],
        )
        update.completed = time.monotonic_ns()
        if message.header_block.startswith(NO_RESPONDERS):
            update.outcome, update.error = AttemptOutcome.FAILED, "503: no server took it"
            return
        answer = read_answer(message.payload)
        if answer.seq > 0 and answer.error is None:
            update.outcome, update.revision = AttemptOutcome.OK, answer.seq
            self._revisions[key] = answer.seq
        else:
            update.error = str(answer.error or "an acknowledgement without a sequence")[:200]
            if answer.err_code in WRONG_LAST:
                update.outcome = AttemptOutcome.FAILED

    async def _read(self, requests: Requests, key: str) -> None:
        """The last revision, from the leader. Raises ``OSError``."""
        asked = {"last_by_subj": self._shared.subject(key)}
        answer = await requests.api(f"STREAM.MSG.GET.{self._shared.stream}", asked, ANSWERED_WITHIN_S)
        if answer.message is not None:
            self._revisions[key] = answer.message.seq
        elif answer.err_code == NO_MESSAGE_FOUND:
            self._revisions[key] = 0


async def read_keys(shared: KeyProcesses, node: int) -> KeyCopy:
    """The last value of each key, by direct gets through this node."""
    url = shared.processes.url_of(node)
    requests = Requests(f"_INBOX.{shared.stream}.G{node}")
    keys: dict[str, tuple[int, str]] = {}
    try:
        if not url:
            return KeyCopy(node, {}, "it does not run")
        await requests.connect(url)
        info = await requests.api(f"STREAM.INFO.{shared.stream}")
        if info.err_code == STREAM_NOT_FOUND:
            return KeyCopy(node, {})  # with the stream, everything is gone
        for key in sorted({one.key for one in shared.updates}):
            subject = f"$JS.API.DIRECT.GET.{shared.stream}.{shared.subject(key)}"
            message = await requests.message(subject, b"")
            if not message.header_block.startswith(STATUS):
                keys[key] = (_revision(message), message_text(message.payload))
            elif not message.header_block.startswith(b"NATS/1.0 404"):
                return KeyCopy(node, keys, f"a direct get is answered {status_of(message)}")
    except OSError as problem:
        return KeyCopy(node, keys, str(problem) or "no answer")
    finally:
        requests.close()
    return KeyCopy(node, keys)


def _revision(message: Message) -> int:
    """Of the answer to a direct get; 0 if it states none."""
    with suppress(ProtocolError):
        stated = message.headers.get("Nats-Sequence") if message.headers else None
        return max(number_in(stated or ""), 0)
    return 0

"""A recording proxy put together: relay and recorder, run in this thread or in one of its own."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from plumbline.captures.dialects import known
from plumbline.captures.filters import parse
from plumbline.captures.rolling import CaptureFiles
from plumbline.proxy import info
from plumbline.proxy.addresses import ENCRYPTED, Endpoint
from plumbline.proxy.counters import Counters
from plumbline.proxy.faults.injection import Faults
from plumbline.proxy.faults.language import Fault, FaultKind, parse_fault
from plumbline.proxy.link import Link
from plumbline.proxy.recorder import Recorder, Recording
from plumbline.proxy.relay import Relay
from plumbline.proxy.tls.contexts import TlsSettings
from plumbline.proxy.tls.opening import TlsOpenings
from plumbline.wire.sender import Direction

PROXY_ADDRESS = "here"
REWRITE_INFO = "rewrite-info"  # the name of the fault that does it
IS_INFO = parse("op = INFO")
ANY_PORT = "127.0.0.1:0"


class RecordingProxy:
    """Listens from construction on. Raises ``AddressError``, and ``OSError`` if the capture cannot be begun.

    ``on_stopped`` gets the reason why nothing more is recorded, from the thread that
    runs. ``info_address``: the address that clients find in INFO: ``here`` for where the proxy listens;
    empty for that of the server.
    """

    def __init__(
        self,
        server: Endpoint,
        listen: Endpoint,
        files: CaptureFiles,
        recording: Recording,
        on_stopped: Callable[[str], None] = lambda why: None,
        *,
        faults: Sequence[Fault] = (),
        seed: int = 0,
        tls: TlsSettings | None = None,
        info_address: str = "",
    ) -> None:
        self.files = files
        self._tls = tls
        self.relay = Relay(server, listen, record_first=recording.strict)
        self.recorder = Recorder(files, recording, self.relay.loop, self.relay.counters, on_stopped)
        self.relay.tap = self.recorder
        self.recorder.on_lost = self.relay.abandon
        self.faults = Faults(
            self.relay.loop,
            known().get(recording.protocol),
            seed,
            lambda link, direction, text: self.recorder.note(link, direction, text, time.time_ns()),
            self.relay.finished.append,
            keeps_secrets=not recording.redact,
        )
        self.faults.change({str(number): fault for number, fault in enumerate(faults, 1)})
        self.relay.disturb = self.faults.attach
        changes = self._changes(info_address)
        if changes:
            self.faults.change({**self.faults.active, REWRITE_INFO: _rewrite(changes)})
        if tls is not None:
            self.relay.opening = TlsOpenings(tls, self._record_greeting, changes)

    def _changes(self, info_address: str) -> dict[str, Any]:
        """What INFO is to say otherwise. Raises ``AddressError``."""
        if not info_address:
            return {}
        place = self.relay.address if info_address == PROXY_ADDRESS else Endpoint.parse(info_address)
        changes = info.address_changes(place)
        tls = self._tls
        if tls is not None and (tls.client is None) != (tls.server is None):
            changes |= info.tls_changes(encrypted=tls.client is not None)
        return changes

    @property
    def counters(self) -> Counters:
        """What has passed."""
        return self.relay.counters

    @property
    def url(self) -> str:
        """For clients."""
        protocol = self.relay.server.protocol
        encrypted = {name: scheme for scheme, name in ENCRYPTED.items()}
        is_encrypted = self._tls is not None and self._tls.client is not None
        return f"{encrypted.get(protocol, protocol) if is_encrypted else protocol}://{self.relay.address}"

    def _record_greeting(self, link: Link, info: bytes, note: str) -> None:
        """The server's first word crossed before the relay began: on record it comes first, too."""
        now = time.time_ns()
        self.recorder.note(link, Direction.TO_CLIENT, note, now)
        if info:
            self.counters.passed[Direction.TO_CLIENT] += len(info)
            self.recorder.data(link, Direction.TO_CLIENT, info, now)

    def run(self) -> None:
        """Until ``relay.stop``."""
        why = "stopped"
        try:
            self.relay.run()
        except BaseException as error:
            why = repr(error)
            raise
        finally:
            self.recorder.close(why)


def _rewrite(changes: dict[str, Any]) -> Fault:
    text = ", ".join(f"{name}={json.dumps(value)}" for name, value in changes.items())
    return Fault(
        f"rewrite INFO set {text}", FaultKind.REWRITE, Direction.TO_CLIENT, where=IS_INFO, changes=changes
    )


@contextmanager
def recorded(
    url: str,
    path: Path,
    *,
    listen: str = ANY_PORT,
    strict: bool = True,
    roll_bytes: int = 0,
    faults: Sequence[str] = (),
    seed: int = 0,
    tls: TlsSettings | None = None,
    info_address: str = "",
) -> Iterator[RecordingProxy]:
    """A recording proxy before ``url``, in a thread; when the block ends, the capture is whole."""
    server = Endpoint.parse(url)
    files = CaptureFiles(path, f"before {server}", roll_bytes=roll_bytes)
    proxy = RecordingProxy(
        server,
        Endpoint.parse(listen, server.protocol),
        files,
        Recording(server.protocol, strict=strict),
        faults=[parse_fault(text) for text in faults],
        seed=seed,
        tls=tls,
        info_address=info_address,
    )
    thread = threading.Thread(target=proxy.run, name="plumbline-proxy")
    thread.start()
    try:
        yield proxy
    finally:
        proxy.relay.stop()
        thread.join()

"""A recording proxy put together: relay and recorder, run in this thread or in one of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from proxy.addresses import ENCRYPTED, Endpoint
from proxy.capture_file import CaptureFiles
from proxy.counters import Counters
from proxy.dialects import known
from proxy.fault_language import Fault, parse_fault
from proxy.faults import Faults
from proxy.link import Link
from proxy.pipe import Direction
from proxy.recorder import Recorder, Recording
from proxy.relay import Relay
from proxy.tls import Tls
from proxy.tls_opening import Openings

ANY_PORT = "127.0.0.1:0"


class RecordingProxy:
    """Listens from construction on. Raises ``AddressError``, and ``OSError`` if the capture cannot be begun.

    ``on_stopped`` is told why nothing more is recorded, from the thread that runs.
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
        tls: Tls | None = None,
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
        )
        self.faults.change({str(number): fault for number, fault in enumerate(faults, 1)})
        self.relay.disturb = self.faults.disturb
        if tls is not None:
            self.relay.opening = Openings(tls, self._greeted, {})

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

    def _greeted(self, link: Link, info: bytes, note: str) -> None:
        """The server's first word crossed before the relay began: on record it comes first, too."""
        now = time.time_ns()
        self.recorder.note(link, Direction.TO_CLIENT, note, now)
        if info:
            self.counters.to_client += len(info)
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


@contextmanager
def recorded(
    url: str,
    place: Path,
    *,
    listen: str = ANY_PORT,
    strict: bool = True,
    roll_bytes: int = 0,
    faults: Sequence[str] = (),
    seed: int = 0,
    tls: Tls | None = None,
) -> Iterator[RecordingProxy]:
    """A recording proxy before ``url``, in a thread; when the block ends, the capture is whole."""
    server = Endpoint.parse(url)
    files = CaptureFiles(place, f"before {server}", roll_bytes=roll_bytes)
    proxy = RecordingProxy(
        server,
        Endpoint.parse(listen, server.protocol),
        files,
        Recording(server.protocol, strict=strict),
        faults=[parse_fault(text) for text in faults],
        seed=seed,
        tls=tls,
    )
    thread = threading.Thread(target=proxy.run, name="plumbline-proxy")
    thread.start()
    try:
        yield proxy
    finally:
        proxy.relay.stop()
        thread.join()

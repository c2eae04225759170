"""An addon for mitmproxy: shows NATS and AMQP as operations, and writes what passes as our capture.

    mitmdump --mode reverse:tcp://127.0.0.1:4222 -s $(plumbline mitm-addon) --set plumbline_capture=captures/

mitmproxy is the relay here, and ends TLS with its own certificates; half-closed connections, segments and
times are as it tells them. Secrets are masked before they are written, unless ``plumbline_keep_secrets`` is
set; what mitmproxy itself shows and saves is not ours to mask.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mitmproxy import ctx, tcp
from mitmproxy.addonmanager import Loader

_HOME = str(
    Path(__file__).parents[3]
)  # not resolved: ``plumbline mitm-addon`` prints a path below ``plumbline/``
if _HOME not in sys.path:  # mitmproxy may run in an environment of its own
    sys.path.append(_HOME)

from plumbline.captures.rolling import CaptureFiles  # noqa: E402
from plumbline.proxy.addresses import PORTS, RAW  # noqa: E402
from plumbline.proxy.counters import Counters  # noqa: E402
from plumbline.proxy.mitm import views as mitm_views  # noqa: E402
from plumbline.proxy.recorder import Recorder, Recording  # noqa: E402
from plumbline.wire.sender import Direction  # noqa: E402

_log = logging.getLogger("plumbline")


class FlowConnection:
    """A flow as the recorder knows it."""

    def __init__(self, number: int, flow: tcp.TCPFlow) -> None:
        self.number = number
        self.client_address: Any = flow.client_conn.peername
        self.server_address: Any = flow.server_conn.peername or flow.server_conn.address


class _LoopClock:
    """See ``recorder.Clock``."""

    def after(self, seconds: float, action: Callable[[], None]) -> Any:
        return asyncio.get_running_loop().call_later(seconds, action)


class PlumblineAddon:
    """Hooks of mitmproxy, by their names."""

    def __init__(self) -> None:
        self._recorder: Recorder | None = None
        self._passing: dict[str, FlowConnection] = {}
        self._counters = Counters()

    def load(self, loader: Loader) -> None:
        """The addon is there."""
        loader.add_option("plumbline_capture", str, "", "Write pcapng files to this folder.")
        loader.add_option("plumbline_protocol", str, RAW, "What is spoken: nats, amqp, or tcp for either.")
        loader.add_option("plumbline_keep_secrets", bool, False, "Do not mask secrets in those files.")
        mitm_views.add()

    def running(self) -> None:
        """The options are set."""
        place, protocol = ctx.options.plumbline_capture, ctx.options.plumbline_protocol
        if not place:
            return
        if protocol not in (*PORTS, RAW):
            _log.error("plumbline_protocol %s: known are %s and %s", protocol, ", ".join(PORTS), RAW)
            _shut_down()
            return
        try:
            files = CaptureFiles(Path(place).expanduser(), "by mitmproxy")
        except OSError as error:
            _log.error("cannot record to %s: %s", place, error.strerror or error)
            _shut_down()
            return
        recording = Recording(protocol, strict=True, redact=not ctx.options.plumbline_keep_secrets)
        self._recorder = Recorder(files, recording, _LoopClock(), self._counters, self._stopped)
        self._recorder.on_lost = _shut_down

    def _stopped(self, why: str) -> None:
        """As with ``plumbline record``, what cannot be recorded does not pass."""
        _log.error("the recording stopped: %s", why)
        _shut_down()

    def tcp_start(self, flow: tcp.TCPFlow) -> None:
        """A client and its server are connected."""
        if self._recorder is not None:
            self._counters.accepted += 1
            passing = self._passing[flow.id] = FlowConnection(self._counters.accepted, flow)
            self._recorder.connected(passing, _ns(flow.timestamp_created))

    def tcp_message(self, flow: tcp.TCPFlow) -> None:
        """Bytes have come, and are not yet forwarded."""
        passing = self._passing.get(flow.id)
        if self._recorder is None or passing is None:
            return
        message = flow.messages[-1]
        direction = Direction.TO_SERVER if message.from_client else Direction.TO_CLIENT
        self._recorder.data(passing, direction, message.content, _ns(message.timestamp))
        if not self._recorder.commit():
            _shut_down()

    def tcp_end(self, flow: tcp.TCPFlow) -> None:
        """Both sides have ended."""
        self._end(flow.id)

    def _end(self, flow_id: str) -> None:
        passing = self._passing.pop(flow_id, None)
        if self._recorder is not None and passing is not None:
            for direction in Direction:
                self._recorder.ended(passing, direction, time.time_ns())
            self._recorder.closed(passing)

    def tcp_error(self, flow: tcp.TCPFlow) -> None:
        """One side is gone."""
        passing = self._passing.pop(flow.id, None)
        if self._recorder is not None and passing is not None:
            why = flow.error.msg if flow.error else "an error"
            self._recorder.reset(passing, Direction.TO_CLIENT, time.time_ns(), why)

    def done(self) -> None:
        """The end of mitmproxy, or of this script before it is read again."""
        mitm_views.remove()
        for flow_id in list(self._passing):
            self._end(flow_id)
        if self._recorder is not None:
            self._recorder.close("mitmproxy ended")


def _shut_down() -> None:
    master: Any = ctx.master
    master.shutdown()


def _ns(seconds: float | None) -> int:
    return time.time_ns() if seconds is None else int(seconds * 1e9)


addons = [PlumblineAddon()]

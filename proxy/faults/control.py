"""The control API: lists, adds, changes and removes faults at run time; on loopback only.

    GET    /faults             {"slow": "latency 50ms on downstream"}
    POST   /faults             {"name": "slow", "fault": "latency 50ms on downstream"}; 409 if there is one
    POST   /faults/slow        {"fault": "latency 80ms"}
    DELETE /faults/slow
    POST   /reset              removes all
    GET    /connections        [{"connection": 3, "client": "127.0.0.1:4000", "to_server": 7, "to_client": 9}]
    /proxies and below, /version: the same faults in the shape of toxiproxy's API, see ``toxics``

A body is JSON, with ``Content-Type: application/json``. What was wrong with a request is in ``error``,
with the status 400 or 404. Refused (403) is what a web page can make a browser send, since a page must not
change faults: a request for another host, with the header ``Origin``, or with a ``Sec-Fetch-Site`` other than
``none`` and ``same-origin``.
"""

from __future__ import annotations

import io
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from plumbline.bounds import MAX_CONTROL_BODY, MAX_CONTROL_CONNECTION_S, MAX_CONTROL_CONNECTIONS
from plumbline.errors import UNDECODABLE
from plumbline.proxy.faults.injection import Faults
from plumbline.proxy.faults.language import Fault, FaultError, parse_fault
from plumbline.proxy.faults.toxics import Toxic, of_fault
from plumbline.proxy.relay import Relay, error_text
from plumbline.wire.units import read_number

ANSWER_WITHIN_S = 10.0
VERSION = "2.5.0"  # of toxiproxy, whose API this is like
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class RequestError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class ControlApi:
    """Serves from construction on, in a thread of its own; port 0 is any. Raises ``OSError``."""

    def __init__(self, relay: Relay, faults: Faults, port: int) -> None:
        self._relay = relay
        self._faults = faults
        self.name = relay.server.protocol  # of the one proxy, for who asks for proxies
        self._toxics_by_name: dict[str, Toxic] = {}
        faults.may_change = True
        self._server = _Server(("127.0.0.1", port), partial(_Handler, self))
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="plumbline-control", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Serves no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, method: str, path: str, body: Any) -> Any:
        """What a request gives. Raises ``RequestError``."""
        match method, path.strip("/").split("/"):
            case "GET", ["faults"]:
                return self._in_loop(self._listed)
            case "POST", ["faults"]:
                return self._in_loop(partial(self._add_fault, _text(body, "name"), _fault(body)))
            case "POST", ["faults", name]:
                return self._in_loop(partial(self._change_fault, name, _fault(body)))
            case "DELETE", ["faults", name]:
                return self._in_loop(partial(self._remove_fault, name))
            case "POST", ["reset"]:
                return self._in_loop(partial(self._set_faults, {}))
            case "GET", ["connections"]:
                return self._in_loop(self._connections)
            case "GET", ["version"]:
                return {"version": VERSION}
            case "GET", ["proxies"]:
                return self._in_loop(lambda: {self.name: self._proxy()})
            case _, ["proxies", name, *rest] if rest[:1] in ([], ["toxics"]):
                if name != self.name:
                    raise RequestError(HTTPStatus.NOT_FOUND, f"proxy not found: there is one, {self.name}")
                return self._toxics(method, rest[1:] if rest else None, body)
        raise RequestError(HTTPStatus.NOT_FOUND, f"no such resource: {method} {path}")

    def _toxics(self, method: str, path: list[str] | None, body: Any) -> Any:
        """The proxy itself if there is no path, else its toxics."""
        match method, path:
            case "GET", None:
                return self._in_loop(self._proxy)
            case "GET", []:
                return self._in_loop(lambda: self._proxy()["toxics"])
            case "POST", []:
                return self._in_loop(partial(self._toxic_added, _toxic(lambda: Toxic.of(_object(body)))))
            case "GET", [name]:
                return self._in_loop(lambda: self._named(name).as_json())
            case "POST" | "PATCH", [name]:
                return self._in_loop(
                    lambda: self._toggle_toxic(_toxic(lambda: self._named(name).changed(_object(body))))
                )
            case "DELETE", [name]:
                self._in_loop(partial(self._remove_fault, name))
                return None
        raise RequestError(HTTPStatus.NOT_FOUND, f"no such resource: {method} here")

    # -- in the loop's thread ----------------------------------------------------------------

    def _proxy(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "listen": str(self._relay.address),
            "upstream": str(self._relay.server),
            "enabled": True,
            "toxics": [self._named(name).as_json() for name in self._faults.active],
        }

    def _named(self, name: str) -> Toxic:
        """The fault of that name as a toxic."""
        fault = self._faults.active.get(name)
        if fault is None:
            raise RequestError(HTTPStatus.NOT_FOUND, f"toxic not found: {name}")
        toxic = self._toxics_by_name.get(name)
        return toxic if toxic is not None and toxic.fault() == fault else of_fault(name, fault)

    def _toxic_added(self, toxic: Toxic) -> dict[str, Any]:
        if toxic.name in self._faults.active:
            raise RequestError(HTTPStatus.CONFLICT, f"toxic already exists: {toxic.name}")
        return self._toggle_toxic(toxic)

    def _toggle_toxic(self, toxic: Toxic) -> dict[str, Any]:
        self._toxics_by_name[toxic.name] = toxic
        self._set_faults({**self._faults.active, toxic.name: toxic.fault()})
        return toxic.as_json()

    def _listed(self) -> dict[str, str]:
        return {name: fault.text for name, fault in self._faults.active.items()}

    def _add_fault(self, name: str, fault: Fault) -> dict[str, str]:
        if name in self._faults.active:
            raise RequestError(HTTPStatus.CONFLICT, f"a fault with this name already exists: {name}")
        return self._set_faults({**self._faults.active, name: fault})

    def _change_fault(self, name: str, fault: Fault) -> dict[str, str]:
        self._require_fault(name)
        return self._set_faults({**self._faults.active, name: fault})

    def _remove_fault(self, name: str) -> dict[str, str]:
        self._require_fault(name)
        return self._set_faults({key: fault for key, fault in self._faults.active.items() if key != name})

    def _require_fault(self, name: str) -> None:
        if name not in self._faults.active:
            raise RequestError(HTTPStatus.NOT_FOUND, f"no fault {name}")

    def _set_faults(self, active: dict[str, Fault]) -> dict[str, str]:
        self._faults.change(active)
        self._toxics_by_name = {name: one for name, one in self._toxics_by_name.items() if name in active}
        return self._listed()

    def _connections(self) -> list[dict[str, Any]]:
        return [
            {
                "connection": link.number,
                "client": _shown(link.client_address),
                **{pipe.direction.name.lower(): pipe.bytes for pipe in link.pipes},
            }
            for link in self._relay.links
        ]

    # -- from other threads ------------------------------------------------------------------

    def _in_loop(self, action: Callable[[], Any]) -> Any:
        """What ``action`` gives in the loop's thread."""
        done = threading.Event()
        outcome: list[Any] = []

        def run() -> None:
            try:
                outcome.append(action())
            except RequestError as refused:
                outcome.append(refused)
            except Exception as error:  # the connections go on
                outcome.append(RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, error_text(error)))
            done.set()

        self._relay.loop.call(run)
        if not done.wait(ANSWER_WITHIN_S):
            raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, "the proxy has stopped or does not respond")
        if isinstance(outcome[0], RequestError):
            raise outcome[0]
        return outcome[0]


class _Server(ThreadingHTTPServer):
    """One thread for each connection, of which there are not many."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._free = threading.BoundedSemaphore(MAX_CONTROL_CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is gone is no error of ours."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _TimedReader(io.RawIOBase):
    """Reads from a connection until its time is over. Raises ``TimeoutError``."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._ends = time.monotonic() + MAX_CONTROL_CONNECTION_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._ends - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, control: ControlApi, *args: Any) -> None:
        self._control = control
        super().__init__(*args)

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_TimedReader(self.connection))

    def do_GET(self) -> None:  # named by the base class
        self._respond()

    def do_POST(self) -> None:
        self._respond()

    def do_PATCH(self) -> None:
        self._respond()

    def do_DELETE(self) -> None:
        self._respond()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # named by the base class
        """Says nothing."""

    def _respond(self) -> None:
        status = HTTPStatus.OK
        try:
            found = self._control.answer(self.command, self.path, self._body())
        except RequestError as refused:
            status, found = refused.status, {"error": str(refused), "status": int(refused.status)}
        if found is None:
            self.send_response(HTTPStatus.NO_CONTENT)
            self.end_headers()
            return
        body = json.dumps(found).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _body(self) -> Any:
        """What the body holds; None without a body. Raises ``RequestError``."""
        headers = self.headers
        length = read_number(headers.get("Content-Length", "0"))
        if length is None or length > MAX_CONTROL_BODY or "Transfer-Encoding" in headers:
            self.close_connection = True
            raise RequestError(
                HTTPStatus.BAD_REQUEST, f"a body of at most {MAX_CONTROL_BODY} bytes, with its length"
            )
        text = self.rfile.read(length)
        self._refuse_web_pages()
        if not text:
            return None
        if headers.get_content_type() != "application/json":
            raise RequestError(
                HTTPStatus.BAD_REQUEST, "a body needs the header Content-Type: application/json"
            )
        try:
            return json.loads(text)
        except UNDECODABLE as error:
            raise RequestError(HTTPStatus.BAD_REQUEST, f"JSON, but {error}") from None

    def _refuse_web_pages(self) -> None:
        """A web page can make a browser ask us, also under another name (DNS rebinding)."""
        headers = self.headers
        if headers.get("Host", "").rpartition(":")[0] not in LOOPBACK:
            raise RequestError(HTTPStatus.FORBIDDEN, "the Host header must be a loopback address")
        sites = headers.get_all("Sec-Fetch-Site", [])
        if "Origin" in headers or any(site not in ("none", "same-origin") for site in sites):
            raise RequestError(HTTPStatus.FORBIDDEN, "requests of web pages are not allowed")


def _text(body: Any, name: str) -> str:
    value = body.get(name) if isinstance(body, dict) else None
    if not isinstance(value, str) or not value:
        raise RequestError(HTTPStatus.BAD_REQUEST, f'expected an object with the text "{name}"')
    return value


def _object(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise RequestError(HTTPStatus.BAD_REQUEST, "expected an object")
    return body


def _toxic(make: Callable[[], Toxic]) -> Toxic:
    """A toxic that can be a fault."""
    try:
        toxic = make()
        toxic.fault()
    except ValueError as error:
        raise RequestError(HTTPStatus.BAD_REQUEST, str(error)) from None
    return toxic


def _fault(body: Any) -> Fault:
    try:
        return parse_fault(_text(body, "fault"))
    except FaultError as error:
        raise RequestError(HTTPStatus.BAD_REQUEST, str(error)) from None


def _shown(address: Any) -> str:
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address)

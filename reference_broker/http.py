"""HTTP of monitoring and management: one request, one answer, and the connection ends. Pure.

Source: RFC 9112.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl, urlsplit

from plumbline.bounds import MONITORING_REQUEST

HTTP_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
REASONS = {
    200: "OK",
    201: "Created",
    204: "No Content",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    503: "Service Unavailable",
}
_LONGEST_LENGTH = 18  # digits


class HttpRequest:
    """What a client sends, until it is whole. ``status`` other than 200 refuses it.

    ``max_body``: bytes of the longest body; a request with a longer one is refused.
    """

    def __init__(self, methods: Iterable[str] = ("GET", "HEAD"), max_body: int = 0) -> None:
        self.data = b""
        self.status = 200
        self.method = ""
        self.path = ""
        self.query: dict[str, str] = {}
        self.headers: dict[str, str] = {}  # by name in lower case
        self.body = b""
        self._methods = frozenset(methods)
        self._max_body = max_body
        self._has_head = False
        self._length = 0  # bytes of the body

    @property
    def wants_continue(self) -> bool:
        """Whether the client waits for ``HTTP_CONTINUE`` before it sends the body."""
        is_whole = len(self.data) >= self._length
        return self._has_head and not is_whole and self.headers.get("expect", "").lower() == "100-continue"

    def feed(self, data: bytes) -> bool:
        """Whether there is something to answer."""
        self.data += data
        if not self._has_head:
            end = self.data.find(b"\r\n\r\n")
            if end < 0:
                if len(self.data) > MONITORING_REQUEST:
                    self.status = 400
                return self.status != 200
            self._has_head = True
            self.status = self._read_head(self.data[:end].decode("latin-1"))
            self.data = self.data[end + 4 :]
        if self.status != 200:
            return True
        if len(self.data) < self._length:
            return False
        self.body = self.data[: self._length]
        return True

    def _read_head(self, head: str) -> int:
        """The status that it leads to."""
        lines = head.split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return 400
        self.method, target, _ = words
        if self.method not in self._methods:
            return 405
        try:
            parts = urlsplit(target)
            self.query = dict(parse_qsl(parts.query, keep_blank_values=True))
        except ValueError:
            return 400
        self.path = parts.path
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        return self._read_length() if self._max_body else 200

    def _read_length(self) -> int:
        text = self.headers.get("content-length", "0")
        if "transfer-encoding" in self.headers or not (text.isascii() and text.isdecimal()):
            return 400
        if len(text) > _LONGEST_LENGTH or int(text) > self._max_body:
            return 413
        self._length = int(text)
        return 200


def answer(
    status: int, kind: str, body: bytes, *, head_only: bool = False, headers: Mapping[str, str] | None = None
) -> bytes:
    """The bytes of an answer, after which the connection ends."""
    lines = [
        f"HTTP/1.1 {status} {REASONS[status]}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
        "",
        "",
    ]
    return "\r\n".join(lines).encode("latin-1") + (b"" if head_only else body)

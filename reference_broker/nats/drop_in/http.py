"""HTTP of monitoring: one request, one answer, and the connection ends. Pure. Source: RFC 9112."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from plumbline.bounds import MONITORING_REQUEST

REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


class HttpRequest:
    """What a client sends, until its head is whole. ``status`` other than 200 refuses it."""

    def __init__(self) -> None:
        self.data = b""
        self.status = 200
        self.method = ""
        self.path = ""
        self.query: dict[str, str] = {}

    def feed(self, data: bytes) -> bool:
        """Whether there is something to answer."""
        self.data += data
        end = self.data.find(b"\r\n\r\n")
        if end < 0:
            if len(self.data) > MONITORING_REQUEST:
                self.status = 400
            return self.status != 200
        words = self.data[:end].partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self.status = 400
            return True
        self.method, target, _ = words
        if self.method not in ("GET", "HEAD"):
            self.status = 405
            return True
        try:
            parts = urlsplit(target)
            self.query = dict(parse_qsl(parts.query, keep_blank_values=True))
        except ValueError:
            self.status = 400
            return True
        self.path = parts.path
        return True


def answer(status: int, kind: str, body: bytes, *, head_only: bool = False) -> bytes:
    """The bytes of an answer, after which the connection ends."""
    lines = [
        f"HTTP/1.1 {status} {REASONS[status]}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        "",
        "",
    ]
    return "\r\n".join(lines).encode("latin-1") + (b"" if head_only else body)

"""Reads the headers and the payload after the fields of an operation: after bars, or on the lines below.

    PUB ORDERS.new | order 4
    HMSG $inbox 1 | NATS/1.0 408 Request Timeout | Nats-Pending-Messages: 5 || payload

Knows how they are written, not which operation they belong to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from plumbline.conformance.trace.json_text import JsonText, ends_at, read_json, starts_json
from plumbline.conformance.trace.language import FollowingLines, Mismatch
from plumbline.conformance.trace.reader import TraceReader, Use
from plumbline.conformance.trace.template import (
    NameOrText,
    Template,
    TraceScope,
    as_bytes,
    as_text,
    fill,
    match,
    plain,
    show,
)
from plumbline.conformance.trace.text import Text, TraceLineError
from plumbline.wire.nats.headers import VERSION

_VERSION = VERSION.decode()
# Bars inside holes and escapes separate nothing.
_BARS = re.compile(r"\{[^{}]*\}|\\.|\|\|?")
_CRLF = "\r\n"
ELIDE_AFTER = 300


class TextPayload(Struct, frozen=True):
    """A payload of plain text."""

    template: Template

    @property
    def written(self) -> bytes | None:
        """Its bytes as the file has them; None if captures decide."""
        text = plain(self.template)
        return None if text is None else as_bytes(text)

    def fill(self, scope: TraceScope) -> bytes:
        return as_bytes(fill(self.template, scope))

    def show(self, scope: TraceScope) -> str:
        return printable(show(self.template, scope))

    def differences(self, payload: bytes, scope: TraceScope) -> Iterator[Mismatch]:
        if not match(self.template, as_text(payload), scope):
            yield Mismatch("payload", self.show(scope) or "nothing", printable(as_text(payload)) or "nothing")


class JsonPayload(Struct, frozen=True):
    """A payload that is JSON."""

    json: JsonText

    @property
    def written(self) -> bytes:
        return as_bytes(self.json.source)

    def fill(self, scope: TraceScope) -> bytes:
        return as_bytes(self.json.fill(scope))

    def show(self, scope: TraceScope) -> str:
        return self.json.show(scope)

    def differences(self, payload: bytes, scope: TraceScope) -> Iterator[Mismatch]:
        for what, expected, found in self.json.differences(payload, scope):
            yield Mismatch(what, expected, found)


PayloadText = TextPayload | JsonPayload
NO_PAYLOAD = TextPayload(())


class Header(Struct, frozen=True):
    """One header line. ``prefix`` is everything before the value, as written: ``Name: ``."""

    name: str
    prefix: str
    value: NameOrText


class HeaderBlock(Struct, frozen=True):
    """The segments between single bars. ``status`` is what follows ``NATS/1.0``; empty if there is none."""

    status: Template
    fields: tuple[Header, ...]

    @property
    def written(self) -> bytes | None:
        """The block's bytes as the file has them; None if captures decide."""
        parts = [plain(self.status), *(plain(header.value.template) for header in self.fields)]
        texts = [part for part in parts if part is not None]
        return self._block(texts) if len(texts) == len(parts) else None

    def fill(self, scope: TraceScope) -> bytes:
        return self._block(
            [fill(self.status, scope), *(fill(header.value.resolved(scope), scope) for header in self.fields)]
        )

    def _block(self, texts: list[str]) -> bytes:
        lines = [f"{_VERSION} {texts[0]}".rstrip()]
        lines += [header.prefix + text for header, text in zip(self.fields, texts[1:], strict=True)]
        return as_bytes(_CRLF.join([*lines, "", ""]))

    def pairs(self, scope: TraceScope) -> list[tuple[str, str]]:
        """The fields as names and values."""
        return [(header.name, fill(header.value.resolved(scope), scope)) for header in self.fields]

    def show(self, scope: TraceScope) -> str:
        first = [f"{_VERSION} {show(self.status, scope)}".rstrip()] if self.status else []
        return " | ".join(
            first + [header.prefix + show(header.value.resolved(scope), scope) for header in self.fields]
        )


def printable(text: str) -> str:
    """``text`` on one line, not too long."""
    shown = as_bytes(text).decode("utf-8", "backslashreplace").replace("\r", "\\r").replace("\n", "\\n")
    return shown if len(shown) <= ELIDE_AFTER else f"{shown[:ELIDE_AFTER]}... ({len(as_bytes(text))} bytes)"


def read_payload(
    rest: Text, following: FollowingLines, reader: TraceReader, use: Use, announced: int
) -> PayloadText | None:
    """The payload behind a bar, as JSON on the line, or on the lines below; None if there is none.

    ``announced`` is the size written in the operation: pasted text goes on until it is reached.
    """
    if rest.value.startswith("|"):
        bar = 2 if rest.value.startswith("||") else 1
        return _inline(rest.cut(bar).strip(), following, reader, use)
    if rest:
        return _inline(rest, following, reader, use)
    below = following.peek()
    if below is None or not (announced > 0 or starts_json(below.value.lstrip())):
        return None
    following.take()
    if starts_json(below.value.lstrip()):
        return _inline(below.strip(), following, reader, use)
    while len(as_bytes(below.value)) < announced and (line := following.peek()) is not None:
        following.take()
        below = Text(f"{below.value}\n{line.value}", below.line, below.column)
    return TextPayload(reader.template(below, use))


def read_segments(
    rest: Text, following: FollowingLines, reader: TraceReader, use: Use, announced: int
) -> tuple[HeaderBlock | None, PayloadText | None]:
    """Headers and payload; each None if it is not written. ``announced`` is the size of the payload alone."""
    if not rest:
        return _pasted(following, reader, use, announced)
    if not rest.value.startswith("|"):
        return None, _inline(rest, following, reader, use)
    segments, position = list[Text](), 1
    payload: Text | None = None
    if rest.value.startswith("||"):
        return None, _inline(rest.cut(2).strip(), following, reader, use)
    for bar in _BARS.finditer(rest.value, 1):
        if bar[0] in ("|", "||"):
            segments.append(rest.cut(position, bar.start()).strip())
            position = bar.end()
        if bar[0] == "||":
            payload = rest.cut(bar.end()).strip()
            break
    else:
        segments.append(rest.cut(position).strip())
    block = _block(segments, reader, use)
    return block, None if payload is None else _inline(payload, following, reader, use)


def _inline(text: Text, following: FollowingLines, reader: TraceReader, use: Use) -> PayloadText:
    if not starts_json(text.value):
        return TextPayload(reader.template(text, use))
    while ends_at(text.value) < 0 and (line := following.take()) is not None:
        text = Text(f"{text.value}\n{line.value}", text.line, text.column)
    return JsonPayload(read_json(text, reader, use))


def _pasted(
    following: FollowingLines, reader: TraceReader, use: Use, announced: int
) -> tuple[HeaderBlock | None, PayloadText | None]:
    first = following.peek()
    if first is None or not first.value.strip().startswith(_VERSION):
        return None, None
    lines: list[Text] = []
    while (line := following.take()) is not None:
        lines.append(line.strip())
    payload: PayloadText | None = None
    if announced > 0 and (below := following.take_after_blank()) is not None:
        payload = _inline(below, following, reader, use)
    return _block(lines, reader, use), payload


def _block(segments: list[Text], reader: TraceReader, use: Use) -> HeaderBlock:
    status: Template = ()
    fields: list[Header] = []
    for position, segment in enumerate(segments):
        version, rest = segment.first_word()
        if version.value == _VERSION and position == 0:
            status = reader.template(rest, use)
            continue
        found = re.match(r"([^:\s{}]+)[ \t]*:[ \t]*", segment.value)
        if found is None:
            raise TraceLineError.at(
                segment,
                'a header such as "Nats-Msg-Id: 1", or NATS/1.0 with a status as the first one',
                "the payload follows ||",
            )
        fields.append(Header(found[1], found[0], reader.value(segment.cut(found.end()), use)))
    return HeaderBlock(status, tuple(fields))

"""The fault language: parses one line per fault.

    latency 50ms ±10ms on downstream         every byte is so much later, give or take
    bandwidth 100k on upstream               so many bytes a second; 0: nothing passes while it is there
    slice 10 every 5ms                       forwarded in pieces of so many bytes, with pauses
    slow_close 500ms                         an end of stream is passed on so much later
    limit 10k        limit 2s                the connection is closed after so many bytes, or so much time
    reset 10k        reset 2s                the same, with a reset
    timeout 2s                               nothing passes any more; closed after that time
    drop +ACK every 10th                     operations: dropped,
    duplicate MSG the 3rd                    sent twice,
    reorder HMSG with 5%                     sent after the one that follows,
    delay 200ms PUB where subject ~ "a.>"    held back, with all behind them,
    rewrite MSG the 3rd set payload="x"      sent with other fields: ``rewriting``

Times and sizes are those of ``wire.units``: ``10k`` is 10,000 bytes, ``10KiB`` 10,240. Where both are
possible, ``2m`` is two minutes and ``2M`` a size. A time is at most 24 hours.

``on upstream`` is what clients send, ``downstream`` what the server sends; without it, both. An operation is
named by its verb or, for NATS, by its acknowledgement (``+ACK``, ``-NAK``, ``+WPI``, ``+TERM``), and chosen
by ``where`` and a filter as of ``show``. ``every 10th``, ``the 3rd`` and ``with 5%`` count per connection and
direction; of faults that are not about operations, ``with 5%`` chooses connections.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from plumbline.bounds import MAX_FAULT_SIZE, MAX_FAULT_TIME_S
from plumbline.captures.filters import Filter, match_all, parse
from plumbline.errors import PlumblineError
from plumbline.proxy.faults.rewriting import parse_changes
from plumbline.wire.amqp.secrets import SECRETS as AMQP_SECRETS
from plumbline.wire.nats.secrets import SECRETS as NATS_SECRETS
from plumbline.wire.sender import BY_STREAM, Direction
from plumbline.wire.units import DURATION_PATTERN, SECOND, SIZE_PATTERN, read_duration, read_number, read_size


class FaultError(PlumblineError, ValueError):
    """A fault that cannot be read; the message says what was expected."""


class FaultKind(StrEnum):
    """What a fault does."""

    LATENCY = "latency"
    BANDWIDTH = "bandwidth"
    SLICE = "slice"
    SLOW_CLOSE = "slow_close"
    LIMIT = "limit"
    RESET = "reset"
    TIMEOUT = "timeout"
    DROP = "drop"
    DUPLICATE = "duplicate"
    REORDER = "reorder"
    DELAY = "delay"
    REWRITE = "rewrite"


OF_OPERATIONS = frozenset(
    {FaultKind.DROP, FaultKind.DUPLICATE, FaultKind.REORDER, FaultKind.DELAY, FaultKind.REWRITE}
)
ACKNOWLEDGEMENTS = ("+ACK", "-NAK", "+WPI", "+TERM")


class Fault(Struct, frozen=True):
    """One fault. Times in seconds, sizes in bytes; 0 is what was not given."""

    text: str
    kind: FaultKind
    direction: Direction | None = None  # both
    time: float = 0.0
    jitter: float = 0.0
    size: int = 0
    where: Filter = match_all
    every: int = 0  # each so many
    only: int = 0  # that one alone
    share: float = 1.0  # by chance
    changes: Mapping[str, Any] = {}  # of operations that are rewritten; msgspec copies it

    @property
    def redacted_text(self) -> str:
        """``text`` without the secrets that it sets."""
        return _SET_SECRET.sub(r"\1***", self.text)

    def concerns(self, direction: Direction) -> bool:
        """Whether it has to do with that direction."""
        return self.direction is None or self.direction is direction


_SIZE = rf"(?P<size>{SIZE_PATTERN})"
_WITHIN, _JITTER = rf"(?P<time>{DURATION_PATTERN})", rf"(?P<jitter>{DURATION_PATTERN})"
_EITHER = rf"(?:{_WITHIN}|{_SIZE})"
_FORMS: dict[FaultKind, tuple[re.Pattern[str], str]] = {
    FaultKind.LATENCY: (re.compile(rf"{_WITHIN}(?:\s*(?:±|\+-|\+/-)\s*{_JITTER})?"), "50ms ±10ms"),
    FaultKind.BANDWIDTH: (re.compile(rf"{_SIZE}(?:/s)?"), "100k"),
    FaultKind.SLICE: (re.compile(rf"{_SIZE}(?:\s+every\s+{_WITHIN})?"), "10 every 5ms"),
    FaultKind.SLOW_CLOSE: (re.compile(_WITHIN), "500ms"),
    FaultKind.LIMIT: (re.compile(_EITHER), "10k or 2s"),
    FaultKind.RESET: (re.compile(_EITHER), "10k or 2s"),
    FaultKind.TIMEOUT: (re.compile(_WITHIN), "2s"),
    FaultKind.DELAY: (re.compile(_WITHIN), "200ms"),
}
_SET = re.compile(
    r'\s+set\s+(?P<set>(?:[A-Za-z_][\w.-]*=(?:"(?:[^"\\]|\\.)*"|\[[^\]]*\]|[^\s",]+)[\s,]*)+)(?=\s|$)'
)
_SECRETS = "|".join(sorted({*NATS_SECRETS, *AMQP_SECRETS.values()}))
_SET_SECRET = re.compile(
    rf'\b((?:json\.)?(?:{_SECRETS})=)(?:"(?:[^"\\]|\\.)*"|\[[^\]]*\]|[^\s",]+)', re.IGNORECASE
)
_WHERE = re.compile(r"\s+where\s+(?P<where>.+)$")
_ON = re.compile(r"\s+on\s+(?P<way>\S+)$")
_WITH = re.compile(r"\s+with\s+(?P<share>\d+(?:\.\d+)?)\s*%$")
_EVERY = re.compile(r"\s+every\s+(?P<every>\d+)(?:st|nd|rd|th)$")
_THE = re.compile(r"\s+the\s+(?P<only>\d+)(?:st|nd|rd|th)$")
_CHOICES = (_ON, _WITH, _EVERY, _THE)
_VERB = re.compile(r"[\w.+-]+")


def parse_fault(text: str) -> Fault:
    """Reads one line. Raises ``FaultError``."""
    settings, rest = _settings(text)
    rest, chosen = _choices(rest)
    word, _, arguments = rest.strip().partition(" ")
    try:
        kind = FaultKind(word)
    except ValueError:
        raise FaultError(f"{text}: expected one of {', '.join(FaultKind)}") from None
    values: dict[str, float] = {}
    arguments = arguments.strip()
    if kind in _FORMS:
        form, sample = _FORMS[kind]
        found = form.match(arguments)
        if found is None or (kind not in OF_OPERATIONS and found.end() != len(arguments)):
            raise FaultError(f"{text}: expected {kind} {sample}")
        values = _values(text, found)
        arguments = arguments[found.end() :].strip()
    if kind not in OF_OPERATIONS and ("every" in chosen or "only" in chosen or "where" in chosen):
        raise FaultError(f"{text}: {kind} applies to bytes, so every, the and where are not allowed")
    try:
        where = _operation(text, arguments, chosen.get("where", ""))
        changes = parse_changes(settings) if kind is FaultKind.REWRITE else {}
    except ValueError as error:
        raise FaultError(f"{text}: {error}" if kind is FaultKind.REWRITE else str(error)) from None
    if settings and kind is not FaultKind.REWRITE:
        raise FaultError(f"{text}: set is only allowed with rewrite")
    return Fault(
        text=text.strip(),
        kind=kind,
        direction=_direction(text, chosen["way"]) if "way" in chosen else None,
        time=values.get("time", 0.0),
        jitter=values.get("jitter", 0.0),
        size=int(values.get("size", 0)),
        where=where,
        every=_ordinal(text, chosen.get("every")),
        only=_ordinal(text, chosen.get("only")),
        share=_share(text, chosen.get("share", "100")),
        changes=changes,
    )


def _settings(text: str) -> tuple[str, str]:
    """What follows ``set``, and the text without it."""
    spaced = f" {text.strip()}"
    found = _SET.search(spaced)
    if found is None:
        return "", spaced
    return found["set"], f"{spaced[: found.start()]} {spaced[found.end() :].strip()}".rstrip()


def _choices(text: str) -> tuple[str, dict[str, str]]:
    """Takes what may stand at the end, in any order; ``where`` and its filter may stand before the others."""
    chosen: dict[str, str] = {}
    while found := next(filter(None, (form.search(text) for form in _CHOICES)), None):
        chosen |= found.groupdict()
        text = text[: found.start()]
    if found := _WHERE.search(text):
        chosen |= found.groupdict()
        text = text[: found.start()]
    return text, chosen


def _operation(text: str, verb: str, where: str) -> Filter:
    filter_ = parse(where)
    if not verb:
        return filter_
    if not _VERB.fullmatch(verb):
        raise FaultError(f"{text}: expected an operation, such as MSG, basic.ack or +ACK, not {verb!r}")
    if verb in ACKNOWLEDGEMENTS:
        alone = "|$" if verb == "+ACK" else ""  # an empty payload acknowledges, too
        named = parse(f'subject ~ "$JS.ACK.>" and sender = client and payload ~ /^(?:\\{verb}{alone})/')
    else:
        named = parse(f'op = "{verb}"')
    return lambda fields: named(fields) and filter_(fields)


def _values(text: str, found: re.Match[str]) -> dict[str, float]:
    values: dict[str, float] = {}
    for name, value in found.groupdict().items():
        if value is None:
            continue
        number = read_size(value) if name == "size" else read_duration(value)
        if number is None or number > (MAX_FAULT_SIZE if name == "size" else MAX_FAULT_TIME_S * SECOND):
            most = f"{MAX_FAULT_SIZE} bytes" if name == "size" else f"{MAX_FAULT_TIME_S // 3600} h"
            raise FaultError(f"{text}: {value[:100]} is too large, the most is {most}")
        values[name] = number if name == "size" else number / SECOND
    return values


def _direction(text: str, word: str) -> Direction:
    if word not in BY_STREAM:
        raise FaultError(f"{text}: on {word}: expected upstream or downstream")
    return BY_STREAM[word]


def _share(text: str, percent: str) -> float:
    share = float(percent) / 100
    if share > 1:
        raise FaultError(f"{text}: with {percent[:100]}%: the most is 100%")
    return share


def _ordinal(text: str, number: str | None) -> int:
    if number is None:
        return 0
    value = read_number(number)
    if not value:
        raise FaultError(f"{text}: numbers start at 1st and have at most 19 digits")
    return value

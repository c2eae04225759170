"""A bash script that sends the operations of a check, byte for byte, without Plumbline.

Every byte that is not a plain printable character is written as an octal escape inside single quotes, so
nothing a stranger wrote is ever read by the shell.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from msgspec import Struct

from plumbline.verdicts import CheckResult, Target, WireLine
from plumbline.visible import one_line

MAX_OPERATION_BYTES = 4096  # bytes; of a longer one a result holds the beginning only
MAX_SCRIPT_BYTES = 16_000
FIRST_DESCRIPTOR = 3
MAX_CONNECTIONS = 7  # descriptors of one digit, which every bash takes
TURN_S = 0.1  # for the server to answer before the next operation
PAUSE_S = 0.15  # a pause of the check's own is kept
LAST_S = 10.0
CLOSED = "closed by us"
_MASKED = re.compile(rb'"\s*:\s*"\*+"|\x00\*+|\*{4}')


class ManualScript(Struct, frozen=True):
    """``script`` to paste into a shell, or ``why_not``."""

    script: str = ""
    why_not: str = ""


def manual_script(target: Target, check: CheckResult) -> ManualScript:
    """What to type to see the same exchange without Plumbline."""
    sent = [line for line in check.wire if line.direction == ">"]
    names = list(dict.fromkeys(line.connection for line in check.wire))
    if not sent or not all(line.raw for line in sent):
        return ManualScript(why_not="the check sent no operation that can be sent by hand")
    if any(len(line.raw) >= MAX_OPERATION_BYTES for line in sent):
        return ManualScript(why_not="an operation is too long to type")
    if sum(len(line.raw) for line in sent) > MAX_SCRIPT_BYTES:
        return ManualScript(why_not="the exchange is too long to type")
    if len(names) > MAX_CONNECTIONS:
        return ManualScript(why_not=f"it needs {len(names)} connections")
    address = _address(target.url)
    if not address:
        return ManualScript(why_not="the address of the server is not one of a host and a port")
    lines = [
        "bash <<'END'",
        *_remarks(target, sent),
        f"server={address}",
        *_steps(check.wire, names),
        "END",
    ]
    return ManualScript("\n".join(lines))


def _remarks(target: Target, sent: Sequence[WireLine]) -> Iterator[str]:
    yield "# sends the check's operations and prints the answers; objects that it creates are not deleted"
    start = _start(target)
    if start:
        yield f"# start a server and use its address (the server of the run has ended): {start}"
    if any(_MASKED.search(line.raw) for line in sent):
        yield "# replace the asterisks with the secrets"


def _start(target: Target) -> str:
    """The command that starts such a server, or "" if the run was against one that somebody else started."""
    arguments = target.arguments
    if arguments is None or (arguments and "://" in arguments[0]):
        return ""
    if arguments[:1] in (("--server",), ("--target",)):
        name = one_line(arguments[-1])
        return f"{name}, in the configuration of the check (plumbline variants)"
    protocol, flags = ("amqp", arguments[1:]) if arguments[:1] == ("amqp",) else ("nats", ("-js", *arguments))
    return one_line(shlex.join(["plumbline", "broker", protocol, *flags]))


def _address(url: str) -> str:
    """``host/port`` as bash has it below /dev/tcp."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return ""
    if not host or not re.fullmatch(r"[A-Za-z0-9_.:-]+", host):
        return ""
    return f"{host}/{port or (5672 if parts.scheme == 'amqp' else 4222)}"


def _steps(wire: Sequence[WireLine], names: Sequence[str]) -> Iterator[str]:
    """One line each: connect, send, wait for what comes."""
    number = {name: FIRST_DESCRIPTOR + place for place, name in enumerate(names)}
    opened: set[str] = set()
    answered = False
    last_sent = wire[0].at
    for line in wire:
        descriptor = number[line.connection]
        if line.connection not in opened:
            opened.add(line.connection)
            yield _connect(line.connection, descriptor)
            answered = True
        if line.direction == "<":
            answered = True
        elif line.direction == ">":
            pause = line.at - last_sent
            if pause >= PAUSE_S:
                yield f"sleep {pause:.2f}"
            elif answered:
                yield f"sleep {TURN_S}"
            yield f"printf {_quoted(line.raw)} >&{descriptor}"
            answered, last_sent = False, line.at
        elif line.text.startswith(CLOSED):
            yield f"kill $r{descriptor}; exec {descriptor}>&-"
    yield f"sleep {min(LAST_S, max(1.0, wire[-1].at - last_sent)):.1f}; kill $(jobs -p)"


def _connect(connection: str, descriptor: int) -> str:
    label = re.sub(r"[^A-Za-z0-9_.-]", "_", connection)[:40] or "client"
    return (
        f"exec {descriptor}<>/dev/tcp/$server; cat -v <&{descriptor} > >(sed -u 's/^/{label} < /') &"
        f" r{descriptor}=$!"
    )


def _quoted(raw: bytes) -> str:
    """``raw`` as the format of printf, in single quotes."""
    return "'" + "".join(map(_byte, raw)) + "'"


def _byte(byte: int) -> str:
    match byte:
        case 0x0D:
            return "\\r"
        case 0x0A:
            return "\\n"
        case 0x5C:
            return "\\\\"
        case 0x25:
            return "%%"
    return chr(byte) if 0x20 <= byte < 0x7F and byte != 0x27 else f"\\{byte:03o}"

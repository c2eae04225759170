"""``plumbline diff``: a second run is the same; missing, extra, changed and moved operations are reported."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import nats
import pytest

from plumbline.captures.diff import DifferenceKind, compare, differs
from plumbline.captures.diff_reports import as_html, as_text
from plumbline.captures.nats.dialect import NatsCaptureDialect
from plumbline.captures.operations import OperationRow
from plumbline.captures.reassembly import TcpConnection
from plumbline.captures.segments import Address
from plumbline.proxy.record import recorded
from plumbline.servers.nats.nats_server import NatsServer
from plumbline.wire.nats import Connect, HMsg, Info, Msg, Operation, Ping, Pub, Sub
from plumbline.wire.sender import Direction
from tests.patience import HANGS_AFTER_S

TO_SERVER, TO_CLIENT = Direction.TO_SERVER, Direction.TO_CLIENT
COMMAND = [sys.executable, "-m", "plumbline", "diff"]
DIALECT = NatsCaptureDialect()
DirectedOperation = tuple[Direction, Operation]


def rows(*operations: DirectedOperation, number: int = 1) -> list[OperationRow]:
    connection = TcpConnection(number, Address("a", 1), Address("b", 2), "nats")
    return [
        OperationRow(connection, at, way, at, operation, DIALECT)
        for at, (way, operation) in enumerate(operations, 1)
    ]


def sent(*operations: Operation) -> list[DirectedOperation]:
    return [(TO_SERVER, operation) for operation in operations]


def came(*operations: Operation) -> list[DirectedOperation]:
    return [(TO_CLIENT, operation) for operation in operations]


def test_run_specific_values_are_ignored() -> None:
    def run(inbox: str, nuid: str, ns: str, day: str, port: int) -> list[OperationRow]:
        ack = f"$JS.ACK.O.D.1.1.1.{ns}.0"
        return rows(
            *came(Info.make({"server_id": nuid, "port": port, "max_payload": 9})),
            *sent(Sub.make(f"{inbox}.*", 1), Pub.make("$JS.API.INFO", b"", f"{inbox}.{nuid}")),
            *came(Ping.make(), Msg.make(f"{inbox}.{nuid}", 1, f'{{"a":1,"created":"{day}"}}'.encode())),
            *came(Msg.make("O.new", 1, f"at {day}".encode(), ack)),
            *sent(Pub.make(ack, b"+ACK")),
        )

    first = run("_INBOX.abc", "A" * 22, "1" * 19, "2026-11-21T01:02:03Z", 4222)
    second = run("_INBOX.xyz", "b" * 22, "1" + "7" * 18, "2027-01-01T00:00:00.5+02:00", 14222)
    pairs = compare(first, second)
    assert not differs(pairs)
    assert list(as_text(pairs)) == ["1 connection, 1 the same"]


def test_json_is_compared_by_its_fields() -> None:
    first, second = (rows(*sent(Pub.make("a", text))) for text in (b'{"x":1,"y":[2]}', b'{ "y":[2], "x":1 }'))
    assert not differs(compare(first, second))


def test_a_reply_to_another_inbox_is_a_change() -> None:
    asked = sent(Sub.make("_INBOX.a", 1), Sub.make("_INBOX.b", 2), Pub.make("q", b"", "_INBOX.a"))
    (pair,) = compare(
        rows(*asked, *came(Msg.make("_INBOX.a", 1, b"x"))), rows(*asked, *came(Msg.make("_INBOX.b", 1, b"x")))
    )
    assert [one.kind for one in pair.differences] == [DifferenceKind.MISSING, DifferenceKind.EXTRA]


def test_differences_are_missing_extra_changed_or_reordered() -> None:
    one, two, three, four = (Msg.make(f"m.{number}", 1, b"x") for number in range(4))
    (pair,) = compare(
        rows(*came(one, two, three, Msg.make("p", 1, b'{"a":{"b":1}}'), four)),
        rows(*came(two, one, three, Msg.make("p", 1, b'{"a":{"b":2}}'), HMsg.make("q", 1, []))),
    )
    kinds = {one.kind: one for one in pair.differences}
    assert set(kinds) == set(DifferenceKind)
    (change,) = kinds[DifferenceKind.CHANGED].changes
    assert (change.name, change.first, change.second) == ("payload.a.b", 1, 2)
    missing = kinds[DifferenceKind.MISSING].first
    assert missing is not None
    assert missing.row.operation == four
    assert kinds[DifferenceKind.EXTRA].second is not None


def test_connections_are_paired_by_name_and_content_not_by_number() -> None:
    def client(name: str, subject: str, number: int) -> list[OperationRow]:
        return rows(*sent(Connect.make({"name": name}), Pub.make(subject)), number=number)

    first = [*client("x", "a", 1), *client("y", "b", 2), *client("only", "c", 3)]
    second = [*client("y", "b", 1), *client("x", "a", 2)]
    pairs = compare(first, second)
    numbers = [(pair.first and pair.first.number, pair.second and pair.second.number) for pair in pairs]
    assert numbers == [(1, 2), (2, 1), (3, None)]
    assert [pair.differences == () for pair in pairs] == [True, True, False]


def test_html_diff_shows_and_escapes_both_sides() -> None:
    pairs = compare(rows(*sent(Pub.make("a", b"<b>"))), rows(*sent(Pub.make("a", b"<i>"))))
    page = as_html(pairs, "good", "bad")
    assert "| &lt;b&gt;</td>" in page
    assert "| &lt;i&gt;</td>" in page
    assert "<b>" not in page


def test_extra_message_of_real_client_is_a_difference(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run(url: str, messages: int) -> None:
        async with await nats.connect(url) as client:
            jetstream = client.jetstream()
            await jetstream.add_stream(name="ORDERS", subjects=["ORDERS.>"])
            orders = await jetstream.pull_subscribe("ORDERS.*", durable="DISPATCH", stream="ORDERS")
            for number in range(messages):
                await jetstream.publish("ORDERS.new", b"order %d" % number)
                (message,) = await orders.fetch(1, timeout=5)
                await message.ack_sync()
            await jetstream.delete_stream("ORDERS")

    for name, messages in (("one", 3), ("two", 3), ("three", 4)):
        with recorded(nats_server.url, tmp_path / name) as proxy:
            asyncio.run(run(proxy.url, messages))

    def diff(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=HANGS_AFTER_S,
            cwd=tmp_path,
        )

    same = diff("one", "two")
    assert (same.returncode, same.stdout) == (0, "1 connection, 1 the same\n"), same.stdout
    more = diff("one", "three", "--json", "d.json")
    assert more.returncode == 1
    found = json.loads((tmp_path / "d.json").read_text())["connections"][0]["differences"]
    extra = [one["second"]["operation"] for one in found if one["kind"] == "extra"]
    assert "PUB ORDERS.new" in " ".join(extra)
    assert [one for one in extra if "order" in one and "order 3" not in one] == []
    less = diff("one", "three", "--filter", "payload ~ /order [0-2]/")
    assert less.returncode == 0, less.stdout


@pytest.mark.parametrize("arguments", [["nowhere", "nowhere"], [".", "."]])
def test_incomparable_captures_are_rejected(arguments: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_AFTER_S,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert "no " in done.stderr

"""Mapped subjects and hashed passwords of ``plumbline-nats-server``: the same as on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client

from plumbline.reference_broker.nats.bcrypt import matches
from plumbline.reference_broker.nats.config import Destination, SubjectMapping
from plumbline.reference_broker.nats.mappings import LOST, Mappings
from tests.nats_py import flushed
from tests.patience import HANGS_AFTER_S
from tests.reference_broker.drop_in.process import DropIn, drop_in

HASH = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"  # of U*U, a published test vector
CONFIGURATION = f"""
port: -1
jetstream: enabled
mappings {{
  orders: tea.orders
  "shop.*.*": "$2.{{{{wildcard(1)}}}}"
  "tail.>": "to.>"
  half: [ {{destination: half.a, weight: 50%}}, {{destination: half.b, weight: 50}} ]
  gone: [ {{destination: gone, weight: 0%}} ]
}}
authorization {{
  users: [ {{user: all, password: "{HASH}"}}, {{user: few, password: f, permissions: {{publish: orders}}}} ]
}}
accounts {{
  A: {{ users: [ {{user: a, password: a}} ], mappings: {{ orders: coffee }} }}
}}
"""


def play(command: list[str], folder: Path, use: Callable[[DropIn], Awaitable[None]]) -> None:
    file = folder / "server.conf"
    file.write_text(CONFIGURATION)
    with drop_in("-c", str(file), command=command) as server:
        asyncio.run(asyncio.wait_for(use(server), 60))


async def connect(server: DropIn, login: str) -> Client:
    return await nats.connect(
        server.url.replace("0.0.0.0", "127.0.0.1").replace("//", f"//{login}@"), allow_reconnect=False
    )


def test_messages_go_to_mapped_subjects(command: list[str], tmp_path: Path) -> None:
    async def use(server: DropIn) -> None:
        client, other = await connect(server, "all:U*U"), await connect(server, "a:a")
        heard, there = await client.subscribe(">"), await other.subscribe(">")
        await flushed(other)
        for subject in ("orders", "shop.1.2", "tail.x.y", "gone", *["half"] * 20, "end"):
            await client.publish(subject, b"p", headers={"A": "b"} if subject == "orders" else None)
        await other.publish("orders", b"")
        subjects = [(await heard.next_msg(20)).subject for _ in range(24)]
        assert subjects[:3] == ["tea.orders", "2.1", "to.x.y"]
        assert set(subjects[3:-1]) == {"half.a", "half.b"}
        assert subjects[-1] == "end"
        assert (await there.next_msg(20)).subject == "coffee"
        await client.close()
        await other.close()

    play(command, tmp_path, use)


def test_permissions_are_of_the_mapped_subject(command: list[str], tmp_path: Path) -> None:
    async def use(server: DropIn) -> None:
        client = await connect(server, "all:U*U")
        errors: asyncio.Queue[str] = asyncio.Queue()

        async def on_error(error: Exception) -> None:
            errors.put_nowait(str(error).lower())

        with pytest.raises(nats.errors.NoRespondersError):
            await client.request("gone", b"", timeout=HANGS_AFTER_S)
        few = await nats.connect(
            server.url.replace("0.0.0.0", "127.0.0.1").replace("//", "//few:f@"),
            error_cb=on_error,
        )
        await few.publish("orders", b"")
        assert 'publish to "tea.orders"' in await asyncio.wait_for(errors.get(), 20)
        await few.close()
        await client.close()

    play(command, tmp_path, use)


def test_a_wrong_password_is_not_that_of_a_hash(command: list[str], tmp_path: Path) -> None:
    async def use(server: DropIn) -> None:
        for login in ("all:U*V", f"all:{HASH.replace('$', '%24')}"):
            client = Client()
            with pytest.raises(nats.errors.Error, match="Authorization Violation"):
                await client.connect(
                    server.url.replace("0.0.0.0", "127.0.0.1").replace("//", f"//{login}@"),
                    allow_reconnect=False,
                )
            await client.close()

    play(command, tmp_path, use)


def test_what_is_left_of_100_percent_stays_where_it_was() -> None:
    drawn = iter([0, 29, 30, 99])
    mappings = Mappings([SubjectMapping("a.*", (Destination("b.$1", 30),))], lambda n: next(drawn))
    assert [mappings.find(b"a.1") for _ in range(4)] == [b"b.1", b"b.1", b"a.1", b"a.1"]
    assert mappings.find(b"c") is None


def test_what_is_left_is_lost_if_the_source_is_a_destination() -> None:
    drawn = iter([29, 30])
    mappings = Mappings([SubjectMapping("a", (Destination("a", 30),))], lambda n: next(drawn))
    assert [mappings.find(b"a") for _ in range(2)] == [b"a", LOST]


@pytest.mark.parametrize("hashed", ["$2", "$2a$05$", HASH[:-1]])
def test_what_is_no_hash_matches_nothing(hashed: str) -> None:
    assert not matches(hashed, "U*U")
    assert not matches(hashed, hashed)

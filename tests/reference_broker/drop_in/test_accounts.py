"""Accounts of ``plumbline-nats-server``, used with nats.py as on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.js.errors import APIError, ServiceUnavailableError

from plumbline.reference_broker.nats.accounts import Route
from tests.nats_py import flushed
from tests.reference_broker.drop_in.process import COMMAND, DropIn, drop_in, ended

CONFIGURATION = """
port: -1
http: "127.0.0.1:-1"
no_auth_user: guest
jetstream { store_dir: "FOLDER" }
accounts {
  SHOP {
    users = [ {user: shop, password: s} ]
    jetstream { max_mem: 1MB, max_file: 1MB, max_streams: 2, max_consumers: 1, max_stream_bytes: true,
                store_max_stream_bytes: 4096 }
    exports = [ {service: "orders.*"}, {stream: "news.>"}, {service: "secret", accounts: [BANK]} ]
  }
  BANK {
    users = [
      {user: bank, password: b}
      {user: guest, permissions: {publish: "open.>", subscribe: ["_INBOX.>", "open.>"]}}
    ]
    imports = [
      {service: {account: SHOP, subject: "orders.*"}}
      {service: {account: SHOP, subject: secret}}
      {stream: {account: SHOP, subject: "news.>"}, prefix: "shop"}
    ]
  }
}
"""


def play(command: list[str], folder: Path, use: Callable[[DropIn], Awaitable[None]]) -> None:
    file = folder / "server.conf"
    file.write_text(CONFIGURATION.replace("FOLDER", str(folder / "store")))
    with drop_in("-c", str(file), command=command) as server:
        asyncio.run(_within(use(server)))


async def _within(used: Awaitable[None]) -> None:
    await asyncio.wait_for(used, 30)


async def connect(server: DropIn, login: str = "") -> Client:
    return await nats.connect(server.url.replace("0.0.0.0", "127.0.0.1").replace("//", f"//{login}"))


def test_subjects_of_accounts_are_apart(command: list[str], tmp_path: Path) -> None:
    async def use(server: DropIn) -> None:
        shop, bank = await connect(server, "shop:s@"), await connect(server, "bank:b@")
        heard = await bank.subscribe("a")
        await flushed(bank)
        await shop.publish("a", b"1")
        await flushed(shop)
        with pytest.raises(TimeoutError):
            await heard.next_msg(0.2)
        await bank.publish("a", b"2")
        assert (await heard.next_msg(5)).data == b"2"
        await shop.close()
        await bank.close()

    play(command, tmp_path, use)


def test_a_request_goes_to_the_account_that_exports_the_service(tmp_path: Path) -> None:
    async def use(server: DropIn) -> None:
        shop, bank = await connect(server, "shop:s@"), await connect(server, "bank:b@")

        async def answer(message: object) -> None:
            await message.respond(message.subject.encode())  # type: ignore[attr-defined]

        await shop.subscribe("orders.*", cb=answer)
        await flushed(shop)
        assert (await bank.request("orders.7", b"", timeout=5)).data == b"orders.7"
        with pytest.raises(NoRespondersError):
            await bank.request("secret", b"", timeout=5)
        await shop.close()
        await bank.close()

    play(COMMAND, tmp_path, use)


def test_a_stream_of_messages_is_imported_under_another_name(command: list[str], tmp_path: Path) -> None:
    async def use(server: DropIn) -> None:
        shop, bank = await connect(server, "shop:s@"), await connect(server, "bank:b@")
        heard = await bank.subscribe("shop.>")
        await flushed(bank)
        await shop.publish("news.today", b"1")
        message = await heard.next_msg(5)
        assert (message.subject, message.data) == ("shop.news.today", b"1")
        await shop.close()
        await bank.close()

    play(command, tmp_path, use)


def test_a_client_without_credentials_is_the_user_that_is_named(tmp_path: Path) -> None:
    async def use(server: DropIn) -> None:
        problems: list[Exception] = []
        refused = asyncio.Event()

        async def on_error(error: Exception) -> None:
            problems.append(error)
            refused.set()

        guest = await nats.connect(server.url, error_cb=on_error)
        bank = await connect(server, "bank:b@")
        heard = await bank.subscribe("open.x")
        await flushed(bank)
        await guest.publish("open.x", b"1")
        assert (await heard.next_msg(5)).data == b"1"
        await guest.publish("closed", b"1")
        await asyncio.wait_for(refused.wait(), 5)
        assert 'permissions violation for publish to "closed"' in str(problems[0]).lower()
        await guest.close()
        await bank.close()

    play(COMMAND, tmp_path, use)


def test_jetstream_keeps_the_limits_of_an_account(command: list[str], tmp_path: Path) -> None:
    async def use(server: DropIn) -> None:
        shop, bank = await connect(server, "shop:s@"), await connect(server, "bank:b@")
        jetstream = shop.jetstream()
        info = await jetstream.account_info()
        assert (info.limits.max_memory, info.limits.max_streams, info.limits.max_consumers) == (2**20, 2, 1)
        for size, code in ((None, 10113), (8192, 10122)):
            with pytest.raises(APIError) as refused:
                await jetstream.add_stream(name="A", subjects=["x"], max_bytes=size)
            assert refused.value.err_code == code
        for name in ("A", "B"):
            await jetstream.add_stream(name=name, subjects=[f"x.{name}"], max_bytes=1024)
        with pytest.raises(APIError) as refused:
            await jetstream.add_stream(name="C", subjects=["y"], max_bytes=1024)
        assert refused.value.err_code == 10027
        with pytest.raises((ServiceUnavailableError, APIError)):
            await bank.jetstream().account_info()
        await shop.close()
        await bank.close()

    play(command, tmp_path, use)


def test_monitoring_shows_each_account(command: list[str], tmp_path: Path) -> None:
    async def use(server: DropIn) -> None:
        shop = await connect(server, "shop:s@")
        connections = await asyncio.to_thread(server.get, "/connz?auth=1")
        assert connections["connections"][0]["account"] == "SHOP"
        accounts = await asyncio.to_thread(server.get, "/accountz")
        assert {"SHOP", "BANK", "$G", "$SYS"} <= set(accounts["accounts"])
        await shop.close()

    play(command, tmp_path, use)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("accounts { A { imports = [ {service: {account: B, subject: a}} ] } }", "is not there"),
        (
            "accounts { A { imports = [{service: {account: B, subject: a}}] }, B {exports = [{stream: a}]} }",
            "does not export",
        ),
        ("no_auth_user: unknown", "not present"),
        ("accounts { A { users = [{user: a}] }, B { users = [{user: a}] } }", "Duplicate user"),
    ],
)
def test_what_does_not_fit_together_is_refused(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "server.conf").write_text(text)
    result = ended("-c", str(tmp_path / "server.conf"))
    assert (result.returncode, words in result.stderr) == (1, True), result.stderr


@pytest.mark.parametrize(
    ("source", "to", "subject", "found"),
    [
        ("orders.*", "shop.orders.*", "orders.7", "shop.orders.7"),
        ("a.$2.$1", "b.*.*", "a.x.y", "b.y.x"),
        ("a.>", "b.a.>", "a.x.y", "b.a.x.y"),
        ("a.b", "c", "a.b", "c"),
    ],
)
def test_wildcards_of_an_import_keep_their_order_or_have_numbers(
    source: str, to: str, subject: str, found: str
) -> None:
    assert Route("A", source, to).translate(subject.encode()) == found.encode()

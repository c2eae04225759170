"""Operator mode of ``plumbline-nats-server``: users with JWTs, connected by nats.py as to a real server."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import nats
import pytest
from nats.aio.client import Client

from tests.nats_identities import ACCOUNT, OPERATOR, USER, NKey
from tests.nats_py import flushed
from tests.patience import HANGS_AFTER_S
from tests.reference_broker.drop_in.process import DropIn, drop_in, ended

NO_LIMITS = {"subs": -1, "data": -1, "payload": -1}
OF_ACCOUNT = NO_LIMITS | {"imports": -1, "exports": -1, "wildcards": True, "conn": -1}
JETSTREAM = {"mem_storage": -1, "disk_storage": 0, "streams": -1, "consumer": -1}
OPERATOR_KEY, SIGNER = NKey(OPERATOR, "operator"), NKey(ACCOUNT, "signer")
SYSTEM, SHOP, BANK = (NKey(ACCOUNT, name) for name in ("system", "shop", "bank"))


def account(key: NKey, by: NKey = OPERATOR_KEY, **claims: Any) -> str:
    limits = OF_ACCOUNT | claims.pop("limits", {})
    return by.jwt(key.public, "account", {"type": "account", "version": 2, "limits": limits, **claims})


def configuration(folder: Path, accounts: dict[str, str] | None = None, *, in_file: bool = False) -> Path:
    """Of a server with the system account, SHOP and BANK, or what is given for them."""
    activation = SHOP.jwt(
        BANK.public, "secret", {"type": "activation", "version": 2, "subject": "secret", "kind": "service"}
    )
    imports = [
        {"type": "service", "account": SHOP.public, "subject": "orders.*", "local_subject": "shop.orders.*"},
        {"type": "stream", "account": SHOP.public, "subject": "news.>", "local_subject": "news.>"},
        {"type": "service", "account": SHOP.public, "subject": "secret", "token": activation},
    ]
    exports = [
        {"type": "service", "subject": "orders.*"},
        {"type": "stream", "subject": "news.>"},
        {"type": "service", "subject": "secret", "token_req": True},
    ]
    role = {"kind": "user_scope", "key": SIGNER.public, "role": "reader", "template": READER | NO_LIMITS}
    tokens = {
        SYSTEM.public: account(SYSTEM),
        SHOP.public: account(SHOP, exports=exports, limits=JETSTREAM, signing_keys=[role]),
        BANK.public: account(BANK, imports=imports, revocations={NKey(USER, "gone").public: 1800000000}),
    } | (accounts or {})
    operator = OPERATOR_KEY.jwt(
        OPERATOR_KEY.public, "O", {"type": "operator", "version": 2, "system_account": SYSTEM.public}
    )
    if in_file:
        (folder / "operator.jwt").write_text(
            f"-----BEGIN NATS OPERATOR JWT-----\n{operator}\n------END NATS OPERATOR JWT------\n"
        )
        operator = str(folder / "operator.jwt")
    fields = {"port": -1, "operator": operator, "resolver": "MEMORY", "resolver_preload": tokens}
    file = folder / "server.conf"
    file.write_text(json.dumps(fields | {"jetstream": {"store_dir": str(folder / "store")}}))
    return file


READER = {"pub": {"deny": ["orders.>"]}, "sub": {"allow": ["orders.*", "_INBOX.>"]}}


class Login(NamedTuple):
    """A user's JWT, and the key that signs the nonce."""

    token: str
    key: NKey


def login(by: NKey, name: str, *, key: str = "", **claims: Any) -> Login:
    """``key``: whose it is, if it is not the user's own."""
    user = NKey(USER, name)
    times = {each: claims.pop(each) for each in ("exp", "nbf") if each in claims}
    token = by.jwt(user.public, name, NO_LIMITS | {"type": "user", "version": 2, **claims}, **times)
    return Login(token, NKey(USER, key or name))


def play(command: list[str], file: Path, use: Callable[[DropIn], Awaitable[None]]) -> None:
    with drop_in("-c", str(file), command=command) as server:
        asyncio.run(asyncio.wait_for(use(server), 60))


async def connect(server: DropIn, user: Login, **options: Any) -> Client:
    client = Client()
    try:
        await _connect(client, server, user, **options)
    except BaseException:
        await client.close()
        raise
    return client


async def _connect(client: Client, server: DropIn, user: Login, **options: Any) -> None:
    await client.connect(
        server.url.replace("0.0.0.0", "127.0.0.1"),
        user_jwt_cb=lambda: bytearray(user.token.encode()),
        signature_cb=lambda nonce: base64.b64encode(user.key.sign(nonce.encode())),
        allow_reconnect=False,
        **options,
    )


async def refused(server: DropIn, user: Login) -> None:
    with pytest.raises(nats.errors.Error, match="Authorization Violation"):
        await connect(server, user)


def test_users_with_credentials_reach_their_account(command: list[str], tmp_path: Path) -> None:
    async def use(server: DropIn) -> None:
        shop = await connect(server, login(SHOP, "shop"))
        bank = await connect(server, login(BANK, "bank"))
        await shop.jetstream().add_stream(name="S", subjects=["s"], storage="memory")
        with pytest.raises(nats.errors.Error):
            await bank.jetstream().account_info()

        async def answer(message: Any) -> None:
            await message.respond(message.subject.encode())

        await shop.subscribe("orders.*", cb=answer)
        await shop.subscribe("secret", cb=answer)
        news = await bank.subscribe("news.>")
        await flushed(bank)
        await flushed(shop)
        assert (await bank.request("shop.orders.1", b"", timeout=HANGS_AFTER_S)).data == b"orders.1"
        assert (await bank.request("secret", b"", timeout=HANGS_AFTER_S)).data == b"secret"
        await shop.publish("news.today", b"n")
        assert (await news.next_msg(20)).data == b"n"
        await shop.close()
        await bank.close()

    play(command, configuration(tmp_path, in_file=True), use)


def test_permissions_are_in_the_jwt_or_in_the_role_of_its_signer(command: list[str], tmp_path: Path) -> None:
    async def use(server: DropIn) -> None:
        errors: asyncio.Queue[str] = asyncio.Queue()

        async def on_error(error: Exception) -> None:
            errors.put_nowait(str(error).lower().partition("permissions violation ")[2])

        async def violations() -> list[str]:
            """The next two: the client hears of them beside its PONG."""
            return [await asyncio.wait_for(errors.get(), 20) for _ in range(2)]

        own = login(SHOP, "own", pub={"allow": ["a"]}, sub={"deny": ["b"]})
        client = await connect(server, own, error_cb=on_error)
        await client.subscribe("b")
        await client.publish("c", b"")
        assert await violations() == ['for subscription to "b"', 'for publish to "c"']
        await client.close()
        scoped = login(SIGNER, "scoped", issuer_account=SHOP.public, subs=0, data=0, payload=0)
        client = await connect(server, scoped, error_cb=on_error)
        await client.subscribe("a")
        await client.subscribe("orders.1")
        await client.publish("orders.1", b"")
        assert await violations() == ['for subscription to "a"', 'for publish to "orders.1"']
        await client.close()

    play(command, configuration(tmp_path), use)


def test_what_is_not_right_is_refused(command: list[str], tmp_path: Path) -> None:
    async def use(server: DropIn) -> None:
        stranger = NKey(ACCOUNT, "stranger")
        await refused(server, login(stranger, "a"))
        await refused(server, login(stranger, "b", issuer_account=SHOP.public))
        await refused(server, login(SHOP, "c", key="other"))
        await refused(server, login(SHOP, "d", exp=int(time.time()) - 10))
        await refused(server, login(SHOP, "e", nbf=int(time.time()) + 100))
        await refused(server, login(BANK, "gone"))
        await refused(server, login(SIGNER, "f", issuer_account=SHOP.public, pub={"allow": ["a"]}))
        await refused(server, Login("", NKey(USER, "stranger")))

    play(command, configuration(tmp_path), use)


def test_a_bearer_needs_no_key(command: list[str], tmp_path: Path) -> None:
    async def use(server: DropIn) -> None:
        client = await connect(server, login(SHOP, "bearer", key="other", bearer_token=True))
        await client.flush()
        await client.close()

    play(command, configuration(tmp_path), use)


def test_a_jwt_that_ends_closes_the_connection(command: list[str], tmp_path: Path) -> None:
    async def use(server: DropIn) -> None:
        ended = asyncio.Event()

        async def on_end() -> None:
            ended.set()

        soon = login(SHOP, "soon", exp=int(time.time()) + 4)
        client = await connect(server, soon, closed_cb=on_end)
        await asyncio.wait_for(ended.wait(), 20)
        assert "user authentication expired" in str(client.last_error).lower()

    play(command, configuration(tmp_path), use)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({SHOP.public: account(SHOP, by=NKey(OPERATOR, "other"))}, "not trusted"),
        ({SHOP.public: account(BANK)}, "of another account"),
        ({SHOP.public: account(SHOP)[:-4] + "AAAA"}, "signature is not of its issuer"),
        ({SHOP.public: "nonsense"}, "expected 3 chunks"),
        ({"AAAA": account(SHOP)}, "is not a public account key"),
    ],
)
def test_accounts_that_cannot_be_used_end_it(tmp_path: Path, changed: dict[str, str], complaint: str) -> None:
    run = ended("-c", str(configuration(tmp_path, changed)))
    assert run.returncode == 1
    assert complaint in run.stderr

"""Stores whose checksums are right and whose content is nonsense: one clear error, or a start."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path

import pytest

from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.reference_broker.amqp.storage.records import JOURNAL
from plumbline.reference_broker.durable import DurableShell
from plumbline.reference_broker.nats.jetstream.files import layout
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.reference_broker.store_folder import StoreError
from tests.durability.damage import amqp_store, check_nats, nats_store
from tests.durability.nonsense import amqp_nonsense, nats_nonsense

SOME = 40  # stores of each kind of file
NATS, AMQP = nats_store(), amqp_store()


def _nats(folder: Path) -> DurableShell:
    return NatsBroker(jetstream={"store_dir": str(folder)})


def _amqp(folder: Path) -> DurableShell:
    return AmqpBroker(data_dir=str(folder))


def refusal(broker: Callable[[Path], DurableShell], folder: Path, files: Mapping[str, bytes]) -> str:
    """Why a broker does not start on such a store; nothing if it does."""

    async def start() -> None:
        async with broker(folder):
            pass

    asyncio.run(start())  # so that the folder has its stamp
    (place,) = {path.parent for path in folder.rglob("layout.json")}
    for path, data in files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(data)
    try:
        asyncio.run(start())
    except StoreError as error:
        assert all((place / path).read_bytes() == data for path, data in files.items())
        return str(error)
    return ""


def test_an_amqp_broker_starts_or_gives_one_clear_error(tmp_path: Path) -> None:
    nonsense = list(amqp_nonsense(AMQP.journal))
    refused = 0
    for number, data in enumerate(islice(nonsense, 0, None, len(nonsense) // SOME)):
        folder = tmp_path / str(number)
        reason = refusal(_amqp, folder, {JOURNAL: data})
        assert not reason or str(folder) in reason
        refused += "makes no sense" in reason
    assert refused


@pytest.mark.parametrize("path", sorted(path for path in NATS.files if not path.endswith(".blk")))
def test_a_nats_broker_starts_or_gives_one_clear_error(path: str, tmp_path: Path) -> None:
    nonsense = list(nats_nonsense(path, NATS.files[path]))
    for number, data in enumerate(islice(nonsense, 0, None, len(nonsense) // SOME)):
        folder = tmp_path / str(number)
        reason = refusal(_nats, folder, {**NATS.files, path: data})
        assert not reason or str(folder) in reason


@pytest.mark.parametrize("name", ["W", "", "a.b", "../x"])
def test_a_stream_under_the_name_of_another_is_set_aside(name: str) -> None:
    path = "streams/L/stream.json"
    metadata = json.loads(NATS.files[path].partition(b"\n")[0])
    metadata["config"]["name"] = name
    check_nats(NATS, path, layout.seal(metadata))


@pytest.mark.parametrize("name", ["D", "", "a.b"])
def test_a_consumer_under_the_name_of_another_is_set_aside(name: str) -> None:
    path = "streams/L/consumers/C.json"
    metadata = json.loads(NATS.files[path].partition(b"\n")[0])
    check_nats(NATS, path, layout.seal({**metadata, "name": name}))

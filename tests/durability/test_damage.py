"""Every truncation and every changed bit of every kind of file of small stores."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from plumbline.reference_broker.store_folder import STAMP as LAYOUT
from plumbline.reference_broker.store_folder import Stamp, StoreError, StoreFolder
from tests.durability.damage import amqp_store, check_amqp, check_nats, damages, nats_store

SOME = 37  # of so many damages the quick tests try one
NATS, AMQP = nats_store(), amqp_store()
STAMP = Stamp("plumbline.test", 1)


def test_the_small_store_has_every_kind_of_file() -> None:
    kinds = {path.rpartition(".")[2] + path.count("/") * "/" for path in NATS.files}
    assert kinds == {"json//", "blk///", "json///", "log///"}


@pytest.mark.parametrize("path", sorted(NATS.files))
def test_nats_loses_nothing_without_a_warning(path: str) -> None:
    for data in islice(damages(NATS.files[path]), 0, None, SOME):
        check_nats(NATS, path, data)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(path for path in NATS.files if path.startswith("streams/W/")))
def test_nats_loses_nothing_without_a_warning_whatever_bit_is_wrong(path: str) -> None:
    for data in damages(NATS.files[path]):
        check_nats(NATS, path, data)


def test_amqp_loses_nothing_without_a_warning() -> None:
    for data in islice(damages(AMQP.journal), 0, None, SOME):
        check_amqp(AMQP, data)


@pytest.mark.slow
def test_amqp_loses_nothing_without_a_warning_whatever_bit_is_wrong() -> None:
    for data in damages(AMQP.journal):
        check_amqp(AMQP, data)


def test_a_damaged_stamp_is_named_or_means_the_same(tmp_path: Path) -> None:
    folder = StoreFolder(tmp_path, STAMP, synced=False)
    folder.open()
    folder.close()
    path = tmp_path / LAYOUT
    for data in damages(path.read_bytes()):
        path.write_bytes(data)
        folder = StoreFolder(tmp_path, STAMP, synced=False)
        refused = str(tmp_path)
        try:
            files = folder.open()
        except StoreError as error:
            files, refused = {}, str(error)
        folder.close()
        assert files == {}
        assert str(tmp_path) in refused

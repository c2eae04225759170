"""Which plugins a node of RabbitMQ reads when it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from plumbline.servers.amqp.rabbitmq import LIBRARIES, RabbitMQ, schema_of
from plumbline.servers.process import NotReady

PLUGINS = LIBRARIES / "rabbitmq_server-4.3.6" / "plugins"
PRINTS = 'echo "given: ${RABBITMQ_PLUGINS_DIR:+$(ls "$RABBITMQ_PLUGINS_DIR")}"'
EXTERNAL = {"auth_mechanisms": ["PLAIN", "EXTERNAL"]}


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """The program of a RabbitMQ whose Debian is unpacked beside it. It prints the plugins that it is given,
    and ends."""
    (tmp_path / "root" / PLUGINS / "rabbit-4.3.6").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    for name, line in (("rabbitmq-server", PRINTS), ("epmd", "exit")):
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(0o755)
    return tmp_path / "bin" / "rabbitmq-server"


def test_the_schema_is_where_the_node_sees_it(unpacked: Path) -> None:
    assert schema_of(unpacked) == Path("/") / PLUGINS / "rabbit-4.3.6"


def test_another_program_has_its_own_plugins(tmp_path: Path) -> None:
    assert schema_of(tmp_path / "bin" / "rabbitmq-server") is None


def test_a_node_reads_no_plugin_that_it_does_not_need(unpacked: Path) -> None:
    with pytest.raises(NotReady, match=r"given: rabbit-4\.3\.6$"):
        RabbitMQ(unpacked).start()


def test_a_node_that_needs_a_plugin_has_all(unpacked: Path) -> None:
    node = RabbitMQ(unpacked)
    node.configure(EXTERNAL)
    with pytest.raises(NotReady, match=r"given:$"):
        node.start()

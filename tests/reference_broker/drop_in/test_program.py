"""``plumbline-nats-server`` as test suites start it: flags, log lines, files, signals, exit codes."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
from pathlib import Path

import nats
import pytest

from plumbline.reference_broker.nats.drop_in.settings import settings
from plumbline.reference_broker.nats.drop_in.shell.log import Log
from tests.patience import HANGS_AFTER_S
from tests.reference_broker.drop_in.process import DropIn, drop_in, ended

LINE = re.compile(r"\[\d+\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} \[(INF|WRN)\] .*")


def test_its_log_is_that_of_nats_server() -> None:
    with drop_in("-p", "-1", "-a", "127.0.0.1", "-DV") as server:
        assert all(LINE.fullmatch(line) for line in server.lines)
        assert re.search(r"Listening for client connections on 127\.0\.0\.1:\d+$", server.lines[-2])


@pytest.mark.parametrize(
    "text",
    [
        'authorization { users: "s3cr3tPW" }',
        'authorization: "s3cr3tPW"',
        "S: s3cr3tPW\nport: $S",
        "S: s3cr3tPW\ndebug: $S",
    ],
)
def test_a_value_of_a_wrong_type_is_not_shown_since_it_may_be_a_password(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text(text)
    found = ended("-c", "a.conf", folder=tmp_path)
    assert (found.returncode, "not a string" in found.stderr) == (1, True)
    assert "s3cr3tPW" not in found.stderr


def test_text_of_others_is_visible_in_its_errors_and_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.conf").write_bytes(b"\x1b]0;title\x07: 1\n")
    assert "\\x1b]0;title\\x07" in ended("-c", "a.conf", folder=tmp_path).stderr
    Log(settings({}, {})).warning("a user\n[1] [INF] \x1b[31mred")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("[WRN] a user\\n[1] [INF] \\x1b[31mred")


@pytest.mark.parametrize(
    "flags",
    [
        ["-p", "-1", "-n", "mine", "--user", "a", "--pass", "b"],
        ["--port=-1", "--server_name=mine", "-user", "a", "-pass=b", "--addr", "127.0.0.1"],
    ],
)
def test_flags_have_one_or_two_dashes_and_an_equals_sign_or_a_blank(flags: list[str]) -> None:
    async def use(url: str) -> None:
        client = await nats.connect(url.replace("//", "//a:b@"))
        assert client.connected_server_version.major == 2
        assert client._server_info["server_name"] == "mine"
        await client.close()

    with drop_in(*flags) as server:
        asyncio.run(use(server.url))


def test_jetstream_stores_in_the_folder_of_sd(tmp_path: Path) -> None:
    async def use(url: str, *, is_first: bool) -> int:
        client = await nats.connect(url)
        jetstream = client.jetstream()
        if is_first:
            await jetstream.add_stream(name="S", subjects=["s"])
            await jetstream.publish("s", b"1")
        info = await jetstream.stream_info("S")
        await client.close()
        return int(info.state.messages)

    for is_first in (True, False):
        with drop_in("-js", f"-sd={tmp_path}") as server:
            # Launchers read it there, to remove the folder at the end.
            assert any(f'  Store Directory: "{tmp_path}/jetstream"' in line for line in server.lines)
            assert asyncio.run(use(server.url, is_first=is_first)) == 1
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(HANGS_AFTER_S) == 0


def test_a_configuration_with_any_port_writes_a_ports_file(tmp_path: Path) -> None:
    (tmp_path / "server.conf").write_text(
        'host: 127.0.0.1\nport: -1\nhttp: "127.0.0.1:-1"\nleafnodes { listen: "127.0.0.1:-1" }\n'
        f'websocket {{ port: -1, no_tls: true }}\nserver_tags: ["a"]\nports_file_dir: "{tmp_path}"\n'
        f'pid_file: "{tmp_path}/server.pid"\n'
    )
    with drop_in("-c", "server.conf", folder=tmp_path) as server:
        file = tmp_path / f"nats-server_{server.process.pid}.ports"
        ports = json.loads(file.read_text())
        assert ports["nats"] == [server.url]
        assert {name: len(urls) for name, urls in ports.items()} == {
            "nats": 1,
            "monitoring": 1,
            "websocket": 1,
        }
        assert (tmp_path / "server.pid").read_text() == str(server.process.pid)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(HANGS_AFTER_S) == 0
        assert not file.exists()


def test_a_wrong_configuration_ends_it_with_code_1_and_the_place(tmp_path: Path) -> None:
    (tmp_path / "server.conf").write_text("port: 4222\njetstream {\n  domian: hub\n}\n")
    result = ended("-c", "server.conf", folder=tmp_path)
    assert result.returncode == 1
    assert result.stderr == 'nats-server: server.conf:3:3: unknown field "domian"\n'


@pytest.mark.parametrize("block", ["cluster { name: a }", "gateway { name: a }", "leafnodes { remotes: [] }"])
def test_what_needs_other_servers_is_refused(block: str, tmp_path: Path) -> None:
    (tmp_path / "server.conf").write_text(block)
    result = ended("-c", "server.conf", folder=tmp_path)
    assert result.returncode == 1
    assert (
        "server.conf:1:0: this is one server: clusters, gateways and leaf nodes are not supported"
        in result.stderr
    )


def test_an_address_that_cannot_be_had_is_fatal() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = ended("-a", "127.0.0.1", "-p", str(port))
    assert result.returncode == 1
    assert f"[FTL] Error listening on port: 127.0.0.1:{port}" in result.stderr
    result = ended("-a", "999.999.999.999", "-p", "-1")
    assert (result.returncode, "[FTL]" in result.stderr) == (1, True)


def test_a_store_folder_that_is_a_file_is_fatal(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    result = ended("-p", "-1", "-js", "-sd", str(file))
    assert (result.returncode, "[FTL] Can't start JetStream" in result.stderr) == (1, True)


def test_version_and_help() -> None:
    assert ended("--version").stdout.startswith("nats-server: v2.")
    assert "-c, --config" in ended("-h").stdout
    assert ended("--nonsense").returncode == 1


def test_lame_duck_mode_informs_clients_and_refuses_connections(tmp_path: Path) -> None:
    async def use(server_url: str, leave: signal.Signals, pid: int) -> None:
        import os

        leaving = asyncio.Event()

        async def on_lame_duck() -> None:
            leaving.set()

        client = await nats.connect(server_url, lame_duck_mode_cb=on_lame_duck)
        os.kill(pid, leave)
        await asyncio.wait_for(leaving.wait(), 10)
        with pytest.raises(OSError, match="111"):
            await asyncio.open_connection("127.0.0.1", int(server_url.rpartition(":")[2]))
        await client.close()

    with drop_in("-a", "127.0.0.1") as server:
        asyncio.run(use(server.url, signal.SIGUSR2, server.process.pid))


def test_a_reload_takes_other_users_and_dismisses_those_before(tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    file.write_text("port: -1\nauthorization { user: a, password: b }")

    async def use(server_url: str, reload: signal.Signals, pid: int) -> None:
        import os

        closed = asyncio.Event()

        async def on_close() -> None:
            closed.set()

        client = await nats.connect(
            server_url.replace("//", "//a:b@"), allow_reconnect=False, closed_cb=on_close
        )
        file.write_text("port: -1\nauthorization { user: a, password: c }")
        os.kill(pid, reload)
        await asyncio.wait_for(closed.wait(), 10)
        assert not client.is_connected
        again = await nats.connect(server_url.replace("//", "//a:c@"))
        await again.close()

    with drop_in("-c", str(file)) as server:
        asyncio.run(use(server.url, signal.SIGHUP, server.process.pid))


def test_a_reload_takes_permissions_from_clients_that_are_connected(tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    file.write_text("port: -1\nauthorization { users = [ { user: a, password: b } ] }")

    async def use(server: DropIn) -> None:
        refusals: asyncio.Queue[str] = asyncio.Queue()

        async def on_error(error: Exception) -> None:
            await refusals.put(str(error))

        client = await nats.connect(server.url.replace("//", "//a:b@"), error_cb=on_error)
        denied = 'permissions: { publish: { deny: ["secret"] } }'
        file.write_text(f"port: -1\nauthorization {{ users = [ {{ user: a, password: b, {denied} }} ] }}")
        server.process.send_signal(signal.SIGHUP)
        await asyncio.to_thread(server.wait_for, "Reloaded")
        for headers in (None, {"a": "b"}):
            await client.publish("secret", b"x", headers=headers)
            refusal = await asyncio.wait_for(refusals.get(), 10)
            assert "permissions violation for publish" in refusal.lower()
        await client.close()

    with drop_in("-c", str(file)) as server:
        asyncio.run(use(server))


def test_a_launcher_that_reads_its_log_no_more_can_still_stop_it() -> None:
    with drop_in() as server:
        assert server.process.stderr is not None
        server.process.stderr.close()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(HANGS_AFTER_S) == 0


def test_a_signal_can_be_sent_by_name_and_the_log_opened_again(tmp_path: Path) -> None:
    with drop_in() as server:
        assert ended("--signal", f"reopen={server.process.pid}").returncode == 0
        server.wait_for("File log re-opened")
        assert ended("--signal", f"quit={server.process.pid}").returncode == 0
        assert server.process.wait(HANGS_AFTER_S) == 0

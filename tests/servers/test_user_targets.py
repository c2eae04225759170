"""Servers of a user's own file: what the file may say, what is wrong with it, and how they live."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from plumbline.conformance.targets.target import NatsUrl, open_target
from plumbline.servers.nats.nats_server import ServerBinary
from plumbline.servers.process import NotReady, ServerError
from plumbline.servers.targets import TargetError
from plumbline.servers.user_targets import MAX_FILE_SIZE, UserServer, user_target, user_targets

PYTHON = shlex.quote(sys.executable)
BROKER = f"{PYTHON} -P -m plumbline broker nats -js -p {{port}} -sd {{store}}"

# Listens on the port, prints what it received, and prints how it was ended.
TOY = """\
import os, signal, socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
def end(number, frame):
    open("ended", "w").write(signal.Signals(number).name)
    sys.exit(0)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
    signal.signal(number, end)
print(f"here {os.getcwd()} {os.environ['TOY']} {sys.argv[2:]}", flush=True)  # in one piece
while True:
    time.sleep(60)
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "my.toml"
    file.write_text(text)
    return file


def toy(folder: Path, more: str = "") -> UserServer:
    (folder / "toy.py").write_text(TOY)
    start = f"start = '''{PYTHON} -P toy.py {{port}} \"two words\" --store={{store}}'''"
    environment = 'environment = { TOY = "one" }'
    file = written(folder, f'[toy]\nprotocol = "nats"\n{start}\n{environment}\n{more}\n')
    return UserServer(user_target(file, "toy"))


def test_a_server_gets_its_words_its_folder_and_its_environment(tmp_path: Path) -> None:
    with toy(tmp_path, 'ready = "^here"') as server:
        assert server.url.startswith("nats://127.0.0.1:")
        assert server.log.startswith(f"here {tmp_path} one ['two words', '--store=")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1"])
def test_it_is_ended_by_its_stop_signal(tmp_path: Path, name: str) -> None:
    with toy(tmp_path, f'stop = "{name}"\nready = "^here"'):
        pass
    assert (tmp_path / "ended").read_text() == name


def test_a_ready_line_that_does_not_come_is_an_error_with_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(UserServer, "ready_within_s", 1.0)
    server = toy(tmp_path, 'ready = "^never"')
    with pytest.raises(NotReady, match=r"was not ready within 1 s; it printed last:\nhere "), server:
        pass


def test_a_command_that_ends_at_once_is_an_error_with_its_output(tmp_path: Path) -> None:
    start = f"start = '''{PYTHON} -P -c \"print('no licence')\" {{port}}'''"
    server = UserServer(user_target(written(tmp_path, f'[a]\nprotocol = "nats"\n{start}\n'), "a"))
    with (
        pytest.raises(NotReady, match=r"exit code 0; it printed last:\nno licence"),
        server,
    ):
        pass


def test_a_program_beside_the_file_is_found_and_a_missing_one_is_named(tmp_path: Path) -> None:
    file = written(tmp_path, '[a]\nprotocol = "nats"\nstart = "./a -p {port}"\n')
    with pytest.raises(ServerError, match=r"my\.toml: \[a\]: \./a is not a program"):
        UserServer(user_target(file, "a"))
    program = tmp_path / "a"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert user_target(file, "a").program == program


def test_the_configuration_has_the_port_the_store_and_what_a_check_needs(
    tmp_path: Path, server_binary: ServerBinary
) -> None:
    start = f"start = '{server_binary.path} -c {{config}}'"
    file = written(tmp_path, f'[real]\nprotocol = "nats"\n{start}\nready = "Server is ready"\n')
    known = user_target(file, "real")
    assert known.command.takes_config
    assert known.command.keeps_store
    with UserServer(known, {"max_payload": 2048, "jetstream": True}) as server:
        target = open_target(NatsUrl.parse(server.url))
        assert target.info["max_payload"] == 2048
        assert target.info["jetstream"]


def test_the_broker_as_a_users_server_finds_its_store_again(tmp_path: Path) -> None:
    known = user_target(written(tmp_path, f"[own]\nprotocol = 'nats'\nstart = '''{BROKER}'''\n"), "own")
    server = UserServer(known, data=tmp_path / "data")
    for _ in range(2):
        server.start()
        assert (tmp_path / "data" / "store").is_dir()
        assert open_target(NatsUrl.parse(server.url)).info["jetstream"]
        server.kill()
    server.stop()


FILES = """\
[a]
protocol = "amqp"
start = '''PYTHON -P {folder}/start.py'''
[a.files]
"start.py" = \'\'\'
import socket, time
listener = socket.create_server(("127.0.0.1", {port}))
print(f"{{other_port}}", {1}, flush=True)
time.sleep(60)
\'\'\'
"""


def test_files_are_written_with_the_ports_before_each_start(tmp_path: Path) -> None:
    file = written(tmp_path, FILES.replace("PYTHON", PYTHON))
    server = UserServer(user_target(file, "a"), data=tmp_path / "data")
    for _ in range(2):
        server.start()
        port = server.url.removesuffix("/%2f").rpartition(":")[2]
        script = (tmp_path / "data" / "start.py").read_text()
        assert f'("127.0.0.1", {port})' in script
        assert "{1}" in script  # what is no word of ours stays
        server.kill()
    server.stop()


def test_a_fresh_server_without_a_store_is_not_restarted(tmp_path: Path) -> None:
    start = f"start = '''{PYTHON} a.py {{port}}'''"
    text = f"[a]\nprotocol = 'nats'\nfresh = true\nlevel = '2.9'\n{start}\n"
    command = user_target(written(tmp_path, text), "a").command
    assert (command.fresh, command.keeps_store, command.level) == (True, False, "2.9")


GOOD = 'protocol = "nats"\nstart = "a {port}"\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    {
        "": "it has no server; write [NAME]",
        "[a": "it is not TOML",
        "a = 1": "[a]: Expected `object`, got `int`",
        "[a]\nstart = 'a {port}'": "[a]: Object missing required field `protocol`",
        "[a]\nprotocol = 'nats'": "[a]: Object missing required field `start`",
        f"[a]\n{GOOD}sotp = 'SIGINT'": "[a]: Object contains unknown field `sotp`",
        f"[a]\n{GOOD}stop = 'SIGSTOPP'": "[a]: stop = 'SIGSTOPP' is no signal; write SIGTERM, for example",
        f"[a]\n{GOOD}ready = '('": "[a]: ready is not a regular expression",
        f"[a]\n{GOOD}environment = {{ A = 1 }}": "[a]: Expected `str`, got `int` - at `$.environment[...]`",
        "[a]\nprotocol = 'mqtt'\nstart = 'a {port}'": "[a]: Invalid enum value 'mqtt'",
        "[a]\nprotocol = 'nats'\nstart = ''": "[a]: start is empty",
        "[a]\nprotocol = 'nats'\nstart = 'a'": "[a]: start must have {port} or {config}",
        "[a]\nprotocol = 'nats'\nstart = 'a {prot}'": "[a]: start has {prot}; the placeholders are {port}",
        "[a]\nprotocol = 'nats'\nstart = 'a \" {port}'": "[a]: start: No closing quotation",
        "[a]\nprotocol = 'amqp'\nstart = 'a {config}'": "[a]: start must have {port}",
        "[a]\nprotocol = 'amqp'\nstart = 'a {port} {config}'": "[a]: {config} is the configuration of a NATS",
        f"[a]\n{GOOD}files = {{ '../a' = '' }}": "[a]: files: '../a' must be the name of a file",
        f"[a]\n{GOOD}files = {{ 'a' = '' }}": "[a]: start must have {folder}, where files are written",
        "[a]\n" + "x = " + "[" * 5000: "it is nested too deeply",
    }.items(),
)
def test_a_wrong_file_is_one_sentence(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(TargetError, match=re.escape(problem)) as raised:
        user_targets(written(tmp_path, text))
    assert str(raised.value).startswith((str(tmp_path), "my.toml"))
    assert "\n" not in str(raised.value)


def test_a_file_that_is_missing_or_too_large_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"none\.toml: No such file"):
        user_targets(tmp_path / "none.toml")
    with pytest.raises(TargetError, match="more than 1,048,576 bytes"):
        user_targets(written(tmp_path, "#" * (MAX_FILE_SIZE + 1)))


def test_an_unknown_name_is_answered_with_the_names(tmp_path: Path) -> None:
    file = written(tmp_path, f"[one]\n{GOOD}[two]\n{GOOD}")
    with pytest.raises(TargetError, match=r"there is no \[three\]; there are: one, two"):
        user_target(file, "three")

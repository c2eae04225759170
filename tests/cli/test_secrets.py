"""No password reaches a report, a capture, a terminal or the list of processes, in any spelling.

The spellings are those of ``tests.leaks``, independent of ``plumbline.masking``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plumbline.captures.files import read
from plumbline.reports import FORMATS
from tests.cli.command import BY_HAND, PLUMBLINE, Ended, environment, run, started, verify
from tests.leaks.search import Search
from tests.leaks.spellings import spellings as known_spellings
from tests.reference_broker.amqp.drop_in.process import rabbit_drop_in
from tests.reference_broker.drop_in.process import drop_in

PASSWORD = 's3c/r3t"PW+é'
# A defect that shows the CONNECT of a failed check in every report.
DEFECTS = {"nats": "connect-is-not-acknowledged", "amqp": "no-english"}
SELECTED = {"nats": ("CORE-001", "CORE-008"), "amqp": ("AMQP-CONN-001", "AMQP-CONN-007")}


# What must be nowhere: its spellings, and parts of it.
FORBIDDEN = [*known_spellings(PASSWORD), b"s3c", b"r3t"]


def shows(data: bytes) -> list[bytes]:
    """The spellings in ``data``, also inside the base64 of a result."""
    found = [spelling for spelling in FORBIDDEN if spelling in data]
    if data.startswith(b'{\n  "schema": "plumbline.result/1"'):
        lines = [line for check in json.loads(data)["checks"] for line in check.get("wire", [])]
        raw = b"\n".join(b64decode(line.get("raw", "")) for line in lines)
        found += [spelling for spelling in FORBIDDEN if spelling in raw]
    return found


def _is_below(process: Path, ancestor: int) -> bool:
    """Whether a folder of /proc is of a process that ``ancestor`` has started, itself or through others."""
    number = int(process.name)
    while number not in (0, ancestor):
        number = int((process.parent / str(number) / "stat").read_text().rpartition(")")[2].split()[1])
    return number == ancestor


@contextmanager
def watched_processes() -> Iterator[list[str]]:
    """The command lines of processes of this one, seen while the block runs, that show the password."""
    seen: list[str] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.2):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    words = path.read_bytes()
                    if shows(words) and _is_below(path.parent, os.getpid()):
                        seen.append(f"{path}: {words!r}")
                except (FileNotFoundError, ProcessLookupError):
                    continue  # ended meanwhile

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


@contextmanager
def serving(folder: Path, *arguments: str | Path) -> Iterator[str]:
    """A command that serves: the address in the URL of its first line."""
    with started((*PLUMBLINE, *arguments), folder) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert not shows(line.encode())
        yield line.split()[0].rpartition("@")[2].rpartition("//")[2].partition("/")[0]


def with_password(folder: Path, *arguments: str | Path) -> Ended:
    """A command that finds the password in its environment."""
    return run((*PLUMBLINE, *arguments), folder, environment(PLUMBLINE_PASSWORD=PASSWORD))


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["nats", "amqp"])
def test_no_command_shows_a_password(protocol: str, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    secret, work = tmp_path / "secret", tmp_path / "work"
    secret.write_text(f"{PASSWORD}\n")
    flags: list[str | Path] = ["-p", "-1", "--user", "alice", "--pass-file", secret]
    flags += ["-js"] if protocol == "nats" else []
    flags += ["--defect", DEFECTS[protocol]]
    reports = [f"--{name}={'allure' if name == 'allure' else f'r.{name}'}" for name in FORMATS]
    ended: list[Ended] = []
    with watched_processes() as seen, serving(work, "broker", protocol, *flags) as address:
        url = f"{protocol}://alice@{address}"
        selected = [f"--select={name}" for name in SELECTED[protocol]]
        reports.append("--write-waivers=w.toml")
        ended.append(with_password(work, "verify", url, *selected, *reports, "-n", "2"))
        ended.append(verify(work, url, "--password-file", secret, *selected, "-n", "0"))
        assert [one.code for one in ended] == [1, 1], ended
        if protocol == "nats":
            ended.append(with_password(work, "explore", url, "--examples", "2", "--seed", "1"))
            assert ended[-1].code == 0, ended[-1]
        fault = "delay 1ms CONNECT" if protocol == "nats" else "delay 1ms connection.start-ok"
        recording = ("record", f"{protocol}://{address}", "-l", "127.0.0.1:0", "-o", "cap", "--fault", fault)
        with serving(work, *recording) as front:
            through = f"{protocol}://alice@{front}"
            ended.append(with_password(work, "verify", through, *selected, "-n", "0"))
        ended.append(run((*PLUMBLINE, "show", "cap"), work))
        ended.append(run((*PLUMBLINE, "show", "cap", "--json"), work))
        ended.append(run((*PLUMBLINE, "diff", "cap", "cap", "--json", "d.json", "--html", "d.html"), work))
        number = max(read([work / "cap"]), key=lambda row: row.number).connection.number  # of the longest
        ended.append(run((*PLUMBLINE, "trace", "cap", "--connection", str(number), "-o", "t.trace"), work))
        ended.append(run((*PLUMBLINE, "audit", "cap", "--json", "a.json"), work))
        ended.append(with_password(work, "replay", "cap", url, "--connection", str(number), "-o", "again"))
        assert "refused" not in ended[-1].out + ended[-1].err
    assert not seen
    assert all("Traceback" not in one.err for one in ended)
    printed = "".join(one.out + one.err for one in ended)
    assert not shows(printed.encode())
    files = [path for path in work.rglob("*") if path.is_file()]
    assert {path: shows(path.read_bytes()) for path in files if shows(path.read_bytes())} == {}
    suffixes = {".json", ".html", ".junit", ".sarif", ".pcapng"}
    if protocol == "amqp":  # the checks of NATS above get no message, of which there would be a trace
        suffixes.add(".trace")
    assert {path.suffix for path in files} >= suffixes


@pytest.mark.slow
def test_what_needs_no_password_passes_none_on(tmp_path: Path) -> None:
    """The commands that read what others wrote, those that start programs, and the plugin."""
    (tmp_path / "work").mkdir()
    secret, work = tmp_path / "secret", tmp_path / "work"
    secret.write_text(f"{PASSWORD}\n")
    adapter = (sys.executable, "-c", "import os; open('environment', 'w').write(repr(os.environ))")
    flags = ("-p", "-1", "-js", "--user", "alice", "--pass-file", secret)
    with watched_processes() as seen, serving(work, "broker", "nats", *flags) as address:
        url = f"nats://alice@{address}"
        recording = ("record", f"nats://{address}", "-l", "127.0.0.1:0", "-o", "cap", "--live")
        with serving(work, *recording) as front:
            through = f"nats://alice@{front}"
            plugin = (*BY_HAND, "--pyargs", "plumbline.conformance", "--plumbline-target", through)
            env = environment(PLUMBLINE_PASSWORD=PASSWORD)
            ended = [run((*plugin, "--plumbline-select", "CORE-008", "-v", "--junit-xml=p.xml"), work, env)]
            ended.append(with_password(work, "verify", through, "--select", "CORE-008", "--json", "r.json"))
        assert [one.code for one in ended] == [0, 0], ended
        ended.append(
            with_password(work, "cluster", url, url, url, "--for=5s", "--json=c.json", "--html=c.html")
        )
        assert "Authorization" not in ended[-1].out + ended[-1].err
        ended.append(with_password(work, "gate", "--", *adapter))
        ended.append(with_password(work, "gate", "--nats-compat", "--", *adapter))
        ended.append(with_password(work, "judge", "cap", "-o", "judged"))
        ended.append(with_password(work, "report", "r.json", "--html", "again.html", "--sarif", "r.sarif"))
        ended.append(with_password(work, "matrix", "r.json", "-o", "site"))
    assert not seen
    assert all("Traceback" not in one.err for one in ended)
    assert not shows("".join(one.out + one.err for one in ended).encode())
    files = [path for path in work.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"p.xml", "r.json", "c.json", "environment", "index.html"}
    assert [str(hit) for hit in Search(dict.fromkeys([PASSWORD], "the password")).hits(work)] == []


@pytest.mark.slow
def test_the_programs_show_no_password_of_their_configuration(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    configuration, work = tmp_path / "server.conf", tmp_path / "work"
    login = json.dumps(PASSWORD, ensure_ascii=False)
    configuration.write_text(f"port: -1\nauthorization {{ user: alice, password: {login} }}\n")
    with watched_processes() as seen:
        with drop_in("-c", str(configuration), "-DV", folder=work) as server:
            ended = with_password(work, "verify", server.url.replace("//", "//alice@"), "--select=CORE-008")
        settings = f"default_user = alice\ndefault_pass = '{PASSWORD}'\n"
        with rabbit_drop_in(settings, folder=tmp_path) as broker:
            url = f"amqp://alice@127.0.0.1:{broker.port}"
            again = with_password(work, "verify", url, "--select=AMQP-CONN-001")
    assert [ended.code, again.code] == [0, 0], (ended, again)
    assert not seen
    printed = [*server.lines, *broker.lines, ended.out, ended.err, again.out, again.err]
    assert not shows("\n".join(printed).encode())
    assert [str(hit) for hit in Search(dict.fromkeys([PASSWORD], "the password")).hits(work)] == []


def test_an_adapter_gets_no_password(tmp_path: Path) -> None:
    adapter = (sys.executable, "-c", "import os; open('environment', 'w').write(repr(sorted(os.environ)))")
    with_password(tmp_path, "gate", "--", *adapter)
    names = (tmp_path / "environment").read_text()
    assert ("'PATH'" in names, "PLUMBLINE_PASSWORD" in names) == (True, False)


@pytest.mark.parametrize("command", ["verify", "explore", "replay"])
def test_a_wrong_argument_is_shown_without_its_password(command: str, tmp_path: Path) -> None:
    captures = ("none",) if command == "replay" else ()
    ended = run((*PLUMBLINE, command, *captures, "nats://a:s3c/r3t@h:1", "nats://a:s3c#r3t@h:1"), tmp_path)
    assert ended.code == 2
    assert "***@h:1" in ended.err
    assert not shows((ended.out + ended.err).encode())


@pytest.mark.parametrize(
    "value", ["auth:nats://u:s3c=r3t@h", "nats://u:s3c=r3t@h", "auth=nats://u:s3c/r3t@h"]
)
def test_a_wrong_variant_is_shown_without_its_password(value: str, tmp_path: Path) -> None:
    ended = verify(tmp_path, "nats://127.0.0.1:1", "--variant", value)
    assert ended.code == 2
    assert not shows((ended.out + ended.err).encode())


@pytest.mark.parametrize(
    "arguments",
    [
        ("verify", "--target"),
        ("verify", "--server"),
        ("verify", "--select"),
        ("explore", "--target"),
        ("list",),
        ("show",),
        ("report",),
        ("results", "check"),
        ("broker", "nats", "-c"),
    ],
)
def test_a_url_in_the_wrong_place_is_shown_without_its_password(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    ended = run((*PLUMBLINE, *arguments, "nats://alice:s3c/r3tPW@h:1"), tmp_path)
    assert (ended.code, "alice" in ended.err) == (2, True)
    assert not shows((ended.out + ended.err).encode())


def test_a_password_is_given_once_and_for_a_url(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("other\n")
    (tmp_path / "empty").write_text("\n")
    twice = verify(tmp_path, "nats://a:b@127.0.0.1:1", "--password-file", "pw")
    assert (twice.code, "already has a password" in twice.err) == (2, True)
    without = verify(tmp_path, "--password-file", "pw")
    assert (without.code, "--password-file needs a URL" in without.err) == (2, True)
    empty = verify(tmp_path, "nats://a@127.0.0.1:1", "--password-file", "empty")
    assert (empty.code, "the first line must be the password" in empty.err) == (2, True)

"""natscli, the command line of NATS: built once, run on a server, its output without what differs anyway."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from plumbline.conformance.runner.run_lock import file_lock
from plumbline.servers.nats.nats_server import targets_folder
from tests.conformance.clients.libraries import BUILT_WITHIN_S, missing, registries_wanted, run
from tests.reference_broker.drop_in.process import DropIn, drop_in

VERSION = "0.5.1"
CHECKSUM = "h1:Z15ij3P1VlcXOwLUa6kjNEoaVCTDQADctq4GTP1CXnA="  # of the module
MODULE = f"github.com/nats-io/natscli/nats@v{VERSION}"
ENDS_WITHIN_S = 120.0
SUBSCRIBED_WITHIN_S = 60.0

# Times, durations, speeds, addresses, versions, names that are made up, and the width of columns.
VARYING = (
    ("\u00a0", " "),  # some differences of configurations are printed with these
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?", "TIME"),
    (r"\b\d\d:\d\d:\d\d\b", "TIME"),
    (r"\bN[A-Z2-7]{55}\b", "SERVER"),
    (r"\b[A-Za-z0-9]{22}\b", "NAME"),
    (r"\b2\.\d+\.\d+\b", "VERSION"),  # of the server
    (r"_INBOX\.\S+", "INBOX"),
    (r"[\d,.]+ (msgs|[KMGT]?i?B)/sec", r"N \1/sec"),
    (r"[KMGT]?i?B/sec", "B/sec"),
    (r"\b([\d,]+(\.\d+)?(h|ms|m|s|µs|us|ns))+\b", "DURATION"),
    (r"Last Seen: \w+", "Last Seen: DURATION"),
    (r"Client ID: \d+", "Client ID: N"),
    (r"andler:? \d+", "andler N"),  # the process
    (r"─+", "─"),
    (r"[ \t]+", " "),
    (r"│ \d+ │ NATS CLI", "│ N │ NATS CLI"),
)
# Headers, which natscli prints in any order: of an answer to a request, and of a message.
HEADERS = re.compile(r"(?m)(?:^TIME [A-Za-z-]+: .*$\n?)+|(?<=^Headers:\n\n)(?:^[A-Za-z-]+: .*$\n?)+")


def natscli() -> Path:
    """The program; built with Go where tests may take their time, skipped elsewhere."""
    program = targets_folder() / f"natscli-{VERSION}" / "nats"
    if not program.exists():
        if not registries_wanted():
            pytest.skip("natscli is not built: set PLUMBLINE_REGISTRIES=1")
        if shutil.which("go") is None:
            missing("go is missing, for natscli: apt-get install golang")
        program.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(program.with_name("building"), exclusive=True):  # it takes a minute of the processor
            if not program.exists():
                _build(program)
    return program


def _build(program: Path) -> None:
    folder = program.with_name(f"building.{os.getpid()}")
    run(["env", f"GOBIN={folder}", "CGO_ENABLED=0", "go", "install", MODULE], program.parent, BUILT_WITHIN_S)
    built = subprocess.run(
        ["go", "version", "-m", folder / "nats"], capture_output=True, text=True, check=True
    )
    assert CHECKSUM in built.stdout
    (folder / "nats").replace(program)
    folder.rmdir()


def sections(path: Path) -> dict[str, list[str]]:
    """The lines of each section of a file of commands."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("["):
            lines = found.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            lines.append(line)
    return found


def with_sorted_headers(text: str) -> str:
    """The headers in one order."""
    return HEADERS.sub(lambda found: _sorted_lines(found[0]), text)


def _sorted_lines(text: str) -> str:
    ends = text.endswith("\n")
    return "\n".join(sorted(text.splitlines())) + "\n" * ends


class Terminal:
    """Where the commands of a section run. ``printed`` has what each of them printed, and its exit code."""

    def __init__(self, program: Path, server: DropIn, folder: Path, running: ExitStack) -> None:
        self.program = program
        self.server = server
        self.folder = folder
        self.running = running
        self.printed: list[tuple[str, str]] = []
        self.beside: list[tuple[str, subprocess.Popen[str]]] = []
        self.environment = {
            **os.environ,
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "NATS_URL": server.url,
            "NATS_TIMEOUT": "10s",
            "NO_COLOR": "1",
        }

    def play(self, line: str) -> None:
        """One line of a section."""
        kind, _, text = line.partition(" ")
        command, _, given = text.partition(" <<< ")
        if kind == "$":
            done = subprocess.run(
                self.arguments(command),
                cwd=self.folder,
                env=self.environment,
                input=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=ENDS_WITHIN_S,
                check=False,
            )
            self.keep(line, f"{done.stdout}\nexit {done.returncode}")
        elif kind == "&":
            self.start(line, command)
        else:
            self.end(text)

    def arguments(self, command: str) -> list[str]:
        name, *rest = shlex.split(command)
        return [str(self.program) if name == "nats" else name, *rest]

    def start(self, line: str, command: str) -> None:
        """A command that goes on; it has subscribed."""
        subscribed = self.subscriptions()
        process = self.running.enter_context(
            subprocess.Popen(
                self.arguments(command),
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        self.running.callback(process.kill)
        self.beside.append((line, process))
        deadline = time.monotonic() + SUBSCRIBED_WITHIN_S
        while self.subscriptions() <= subscribed:
            assert process.poll() is None, f"{line}: {process.communicate()[0]}"
            assert time.monotonic() < deadline, f"{line} does not subscribe"
            time.sleep(0.02)  # it says too early that it has subscribed, and the server says nothing

    def subscriptions(self) -> int:
        """Of all clients."""
        return sum(one["subscriptions"] for one in self.server.get("/connz")["connections"])

    def end(self, text: str) -> None:
        """The oldest command that goes on."""
        line, process = self.beside.pop(0)
        assert process.stdout is not None
        lines = []
        if text:
            for printed in process.stdout:
                lines.append(printed)
                if text in printed:
                    process.terminate()
                    break
        rest, _ = process.communicate(timeout=ENDS_WITHIN_S)
        self.keep(line, "".join(lines) + (rest if not text else ""))

    def keep(self, line: str, text: str) -> None:
        plain = text.replace(str(self.folder), "FOLDER")
        for pattern, replacement in VARYING:
            plain = re.sub(pattern, replacement, plain)
        lines = [each.strip() for each in plain.strip().splitlines()]
        self.printed.append((line, with_sorted_headers("\n".join(lines))))


@contextmanager
def terminal(program: Path, folder: Path, command: Sequence[str]) -> Iterator[Terminal]:
    """With a server of its own, started by ``command``."""
    folder.mkdir()
    store, home = folder / "store", folder / "home"
    home.mkdir()
    flags = ["-p", "-1", "-a", "127.0.0.1", "-m", "-1", "-js", "-sd", str(store), "-n", "server"]
    with drop_in(*flags, command=command) as server, ExitStack() as running:
        yield Terminal(program, server, home, running)


if __name__ == "__main__":  # CI builds it while nothing else needs the processor
    print(natscli())

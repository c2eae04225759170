"""Runs the blocks of a page in order, as a reader would: in one folder, with well-known ports replaced."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plumbline.servers.ports import free_ports
from tests.docs.pages import ROOT, RUN, Block, Page
from tests.patience import HANGS_AFTER_S

READY_WITHIN_S = 120.0
# Ports of the pages: each is replaced by a free one, so that pages can run side by side.
PORTS = re.compile(r"\b(4222|4223|4333|4334|5672|5673|8080|8222|8474|15672)\b")
# What a checkout has and pages refer to by a relative path.
LINKED = ("conformance", "ci", "servers")


class Background:
    """A command that keeps running, in a session of its own. Its output is collected."""

    def __init__(self, command: str, folder: Path, environment: dict[str, str]) -> None:
        self.command = command
        self.output: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self.output.append(line)
                self._lines.put(line)
        self._lines.put(None)

    def await_first_line(self) -> None:
        """Until it is ready. Fails if it ends instead."""
        line = self._lines.get(timeout=READY_WITHIN_S)
        assert line is not None, f"{self.command}: it ended with {self._process.wait()} and printed nothing"

    def interrupt(self) -> int:
        """Ctrl-C, and its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        code = self._process.wait(HANGS_AFTER_S)
        self._reader.join()
        return code

    def kill(self) -> None:
        """The end of the page."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()


def play(page: Page, folder: Path) -> None:
    """Run every block of it that is not marked ``not-run``. Fails with the output of the command at fault."""
    environment = _environment(folder)
    work = folder / "work"
    work.mkdir()
    for name in LINKED:
        if (ROOT / name).is_dir():
            (work / name).symlink_to(ROOT / name)
    ports = _ports_of(page)
    with _backgrounds() as running:
        for block in page.blocks:
            where = f"{page.name}:{block.line}"
            if "not-run" in block.marks:
                continue
            if "interrupt" in block.marks:
                (process,) = [one for one in running if block.marks["interrupt"] in one.command]
                code = process.interrupt()
                running.remove(process)
                assert code in (0, 130), f"{where}: {process.command}: exit code {code}\n{process.output}"
            elif "file" in block.marks:
                path = work / block.marks["file"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(_with_ports(block.text, ports), encoding="utf-8")
            elif block.language == RUN:
                _run(block, where, ports, work, environment, running)


def _run(
    block: Block,
    where: str,
    ports: dict[str, int],
    work: Path,
    environment: dict[str, str],
    running: list[Background],
) -> None:
    commands = [_with_ports(command, ports) for command in block.commands]
    for number, command in enumerate(commands, 1):
        if "background" in block.marks:
            running.append(Background(command, work, environment))
            running[-1].await_first_line()
            continue
        ended = subprocess.run(
            ["bash", "-c", command],
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HANGS_AFTER_S,
            check=False,
        )
        expected = int(block.marks.get("exit", 0)) if number == len(commands) else 0
        assert ended.returncode == expected, (
            f"{where}: {command}\nexit code {ended.returncode}, the page says {expected}\n"
            f"{ended.stdout}{ended.stderr}"
        )


def _environment(folder: Path) -> dict[str, str]:
    """``plumbline``, ``python`` and ``pytest`` are those of this checkout, whatever is installed."""
    programs = folder / "bin"
    programs.mkdir()
    for name, module in {
        "plumbline": "plumbline",
        "plumbline-nats-server": "plumbline.cli.nats_server",
        "plumbline-rabbitmq": "plumbline.cli.rabbitmq",
    }.items():
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m {module} "$@"\n')
        program.chmod(0o755)
    leaky = ("PYTEST_", "COV_", "FORCE_COLOR", "CI", "NATS_URL", "AMQP_URL")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(leaky)}
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), kept["PATH"]])
    return {**kept, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "120", "NO_COLOR": "1"}


def _with_ports(text: str, ports: dict[str, int]) -> str:
    return PORTS.sub(lambda found: str(ports.get(found[0], found[0])), text)


def _ports_of(page: Page) -> dict[str, int]:
    """A free port for each that the page names."""
    named = sorted({port for block in page.blocks for port in PORTS.findall(block.text)})
    return dict(zip(named, free_ports(len(named)), strict=True))


@contextmanager
def _backgrounds() -> Iterator[list[Background]]:
    running: list[Background] = []
    try:
        yield running
    finally:
        for process in running:
            process.kill()

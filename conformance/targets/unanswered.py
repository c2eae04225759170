"""What does not answer: after some checks in a row no further check waits for it.

It is an API of the target (``UnansweredApis``), or a server that does not answer even what every living
server does (``UnansweringServers``). A request without an answer takes seconds, and hundreds of checks make
the same one. All processes of a run count together, in files of the folder that they share. One answer
restarts the count, and before anything is given up it is asked again: a slow server, and one that elects a
leader, is no silent one.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from plumbline.bounds import ASK_AGAIN, UNANSWERED_CHECKS, UNANSWERED_QUESTIONS
from plumbline.conformance.outcomes import Failed, Inconclusive

if TYPE_CHECKING:
    from plumbline.conformance.sessions.connection import BaseConnection

_COUNT, _GIVEN_UP = "unanswered", "given-up"
_TIME = struct.Struct(">d")  # of one silence, in seconds since 1970


class _Silences:
    """Counts of one run, in the folder ``shared`` of its processes. Without one nothing is counted."""

    kind = ""  # in the names of the files

    def __init__(self, shared: Path | None) -> None:
        self._shared = shared

    def given_up(self, name: str) -> str:
        """Why it is not to be asked any more, in a sentence; empty if it is."""
        if self._shared is None:
            return ""
        try:
            return self._file(name, _GIVEN_UP).read_text("utf-8")
        except FileNotFoundError:
            return ""

    def all_given_up(self) -> list[str]:
        """These sentences, of everything that was given up."""
        files = [] if self._shared is None else sorted(self._shared.glob(f"*.{self.kind}-{_GIVEN_UP}"))
        return [file.read_text("utf-8") for file in files]

    def record_answer(self, name: str) -> None:
        """It has answered a check."""
        if self._shared is not None:
            self._file(name, _COUNT).unlink(missing_ok=True)

    def _give_up(self, name: str, why: str) -> None:
        self._file(name, _GIVEN_UP).write_text(why, "utf-8")

    def _count_silence(self, name: str) -> int:
        """How many there are in a row, with this one."""
        with self._file(name, _COUNT).open("ab") as file:
            file.write(_TIME.pack(time.time()))
            file.flush()
            return file.tell() // _TIME.size

    def _silent_since(self, name: str) -> str:
        """The time of the first one in a row."""
        first = _TIME.unpack(self._file(name, _COUNT).read_bytes()[: _TIME.size])[0]
        return time.strftime("%H:%M:%S UTC", time.gmtime(first))

    def _file(self, name: str, suffix: str) -> Path:
        assert self._shared is not None
        return self._shared / f"{quote(name, safe='')}.{self.kind}-{suffix}"


class UnansweredApis(_Silences):
    """Of the APIs. One is what checks ask for: ``STREAM.CREATE``, ``queue.declare``."""

    kind = "api"

    def record_silence(self, api: str, answers_now: Callable[[], bool]) -> None:
        """It has not answered one check more. ``answers_now`` asks it again, where that decides."""
        if self._shared is None:
            return
        if self._count_silence(api) % UNANSWERED_CHECKS:
            return
        if answers_now():
            self.record_answer(api)
            return
        self._give_up(
            api,
            f"{api} got no answer in {UNANSWERED_CHECKS} checks in a row, and when it was asked again: "
            "checks that need it were not run",
        )


class UnansweringServers(_Silences):
    """Of the servers, by their addresses, and by what checks asked of them: one whose JetStream hangs may
    answer those who do not use it.

    A server that does not answer a new connection either is lost (``runner.judge``), which ends the run.
    """

    kind = "server"

    def record_silence(self, server: str, request: str, *, decides: bool) -> None:
        """It has not answered ``request`` once more. It is given up only where that ``decides``: in a check
        that runs alone, so that neither other checks nor this machine can be why."""
        if self._shared is None:
            return
        count = self._count_silence(server)
        if decides and count >= UNANSWERED_QUESTIONS:
            self._give_up(
                server,
                f"{server} did not answer {request} {count} times in a row since "
                f"{self._silent_since(server)}, also to a check that ran alone: checks that need it were "
                "not run",
            )


def answers_now(connection: BaseConnection, ask: Callable[[], object]) -> bool:
    """Whether an API is not silent if it is asked again: any answer comes, also a late one, or a close.

    ``ask`` sends a request and waits for the next answer. It raises ``Failed`` if none comes."""
    for _ in range(ASK_AGAIN):
        try:
            ask()
        except Failed:
            if connection.has_ended:
                return True
        except Inconclusive:  # an answer that came too late, or a server that does not answer at all
            return True
        else:
            return True
    return False

"""The APIs of the target that do not answer: after some checks in a row no further check waits for them.

A request that is not answered takes seconds, and hundreds of checks make the same one. All processes of a run
count together, in files of the folder that they share. One answer restarts the count, and before an API is
given up it is asked again, for longer: a slow server, and one that elects a leader, is no silent one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from plumbline.bounds import ASK_AGAIN, UNANSWERED_CHECKS
from plumbline.conformance.outcomes import Failed, Inconclusive

if TYPE_CHECKING:
    from plumbline.conformance.connection import BaseConnection

_COUNT, _GIVEN_UP = ".unanswered", ".given-up"


class UnansweredApis:
    """Of one run, in the folder ``shared`` of its processes. Without one nothing is counted.

    An ``api`` is what checks ask for: ``STREAM.CREATE``, ``queue.declare``.
    """

    def __init__(self, shared: Path | None) -> None:
        self._shared = shared

    def given_up(self, api: str) -> str:
        """Why it is not to be asked any more, in a sentence; empty if it is."""
        if self._shared is None:
            return ""
        try:
            return self._file(api, _GIVEN_UP).read_text("utf-8")
        except FileNotFoundError:
            return ""

    def all_given_up(self) -> list[str]:
        """These sentences, of all APIs."""
        files = [] if self._shared is None else sorted(self._shared.glob(f"*{_GIVEN_UP}"))
        return [file.read_text("utf-8") for file in files]

    def record_answer(self, api: str) -> None:
        """It has answered a check."""
        if self._shared is not None:
            self._file(api, _COUNT).unlink(missing_ok=True)

    def record_silence(self, api: str, answers_now: Callable[[], bool]) -> None:
        """It has not answered one check more. ``answers_now`` asks it again, where that decides."""
        if self._shared is None:
            return
        if self._count_silence(api) % UNANSWERED_CHECKS:
            return
        if answers_now():
            self.record_answer(api)
            return
        self._file(api, _GIVEN_UP).write_text(
            f"{api} got no answer in {UNANSWERED_CHECKS} checks in a row, and when it was asked again: "
            "checks that need it were not run",
            "utf-8",
        )

    def _count_silence(self, api: str) -> int:
        with self._file(api, _COUNT).open("ab") as file:
            file.write(b".")
            file.flush()
            return file.tell()

    def _file(self, api: str, kind: str) -> Path:
        assert self._shared is not None
        return self._shared / (quote(api, safe="") + kind)


def answers_now(connection: BaseConnection, ask: Callable[[], object]) -> bool:
    """Whether an API is not silent if it is asked again: any answer comes, also a late one, or a close.

    ``ask`` sends a request and waits for the next answer. It raises ``Failed`` if none comes."""
    for _ in range(ASK_AGAIN):
        try:
            ask()
        except Failed:
            if connection.has_ended:
                return True
        except Inconclusive:  # an answer that came too late, or a server that is busy
            return True
        else:
            return True
    return False

"""How long a run may take: from the start of its command to its exit code, clean-up and reports included."""

from __future__ import annotations

from msgspec import Struct

from plumbline.bounds import ENDING_S
from plumbline.wire.units import SECOND, format_duration

SHORTEST_S = 0.05  # no time at all would set no timer


class TimeLimit(Struct, frozen=True):
    """The run ends within ``seconds`` after ``started_at``, a monotonic time."""

    seconds: float
    started_at: float

    @property
    def _ending(self) -> float:
        """Seconds at the end of the run: for the deletion, and then for the reports."""
        return min(ENDING_S, self.seconds / 3)

    @property
    def deletion_ends_at(self) -> float:
        """The monotonic time at which nothing more is deleted from the target."""
        return self.started_at + self.seconds - self._ending / 3

    @property
    def sentence(self) -> str:
        """Says that the run took longer."""
        limit = format_duration(round(self.seconds * SECOND))
        return f"the time limit of {limit} was reached (--max-time)"

    def left_for_checks(self, now: float) -> float:
        """Seconds from the monotonic time ``now`` until the checks end; what follows them needs time, too."""
        return max(self.started_at + self.seconds - self._ending - now, SHORTEST_S)

"""What a program did, as the lines of a trace."""

from __future__ import annotations

from msgspec import Struct

RESTART = "restart"


class Script(Struct, frozen=True):
    """The lines of a trace, and for each the number of the command it belongs to."""

    lines: tuple[str, ...]
    commands: tuple[int, ...]

    @property
    def restarts(self) -> bool:
        """Whether its trace needs a server of its own."""
        return RESTART in self.lines

    @property
    def shows(self) -> bool:
        """Whether anything is expected in it."""
        return any(">" not in line.split(" ")[0] and line != RESTART for line in self.lines)

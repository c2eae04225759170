"""What the connections of one check have received in all, so that a server that floods is noticed."""

from __future__ import annotations

from plumbline.bounds import ARRIVALS_OF_CHECK, ARRIVED_BYTES_OF_CHECK, OPERATION_BYTES
from plumbline.conformance.outcomes import Flooded

_MIB = 1024 * 1024


class Received:
    """Operations and bytes that have arrived, on all connections of a session."""

    def __init__(self) -> None:
        self.operations = 0
        self.bytes = 0

    def add(self, operations: int, size: int) -> None:
        """Count so many operations, and bytes that may be parts of one."""
        self.operations += operations
        self.bytes += size

    @property
    def is_flood(self) -> bool:
        """Whether that is more than a check may receive."""
        return self.operations > ARRIVALS_OF_CHECK or self.bytes > ARRIVED_BYTES_OF_CHECK

    def flooded(self, connection: str, unfinished: int) -> Flooded:
        """The end of a check that has received too much, the last of it on ``connection``, and there so many
        bytes of unfinished operations."""
        limit = f"{ARRIVALS_OF_CHECK} operations and {ARRIVED_BYTES_OF_CHECK // _MIB} MiB for one check"
        return Flooded(
            f"{connection}: the server floods",
            expected=f"at most {limit}; {OPERATION_BYTES} bytes of unfinished operations",
            actual=f"{self.operations} operations, {self.bytes} bytes; {unfinished} bytes unfinished",
        )

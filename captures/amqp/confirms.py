"""Publisher confirms of one AMQP channel, expanded to one per message.

Source: RabbitMQ, "Consumer Acknowledgements and Publisher Confirms", "Publisher Confirms".
"""

from __future__ import annotations

from collections.abc import Sequence

MAX_AT_ONCE = 1_000_000  # more is no number of messages, but a mistake of the server's


class ConfirmedMessages:
    """The messages that are confirmed, by their numbers from 1."""

    def __init__(self) -> None:
        self.count = 0
        self._floor = 0  # it and all below are confirmed
        self._above: set[int] = set()

    def settle(self, delivery_tag: int, *, multiple: bool, at_most: int = MAX_AT_ONCE) -> Sequence[int]:
        """What this confirms; what was confirmed before only if it is named by itself. More messages than
        ``at_most`` are taken for one."""
        if not multiple or delivery_tag - self._floor > at_most:
            is_new = delivery_tag > self._floor and delivery_tag not in self._above
            self.count += is_new
            if is_new:
                self._above.add(delivery_tag)
            return (delivery_tag,)
        found = [tag for tag in range(self._floor + 1, delivery_tag + 1) if tag not in self._above]
        self._floor = max(self._floor, delivery_tag)
        self._above = {tag for tag in self._above if tag > self._floor}
        self.count += len(found)
        return found

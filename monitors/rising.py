"""What rises with time, as the steps at which it rose: small however often it is stated."""

from __future__ import annotations

from bisect import bisect_left

from msgspec import Struct

from plumbline.monitors.observation import Place

MOST_STEPS = 2_000  # that are remembered: a request that waits for longer is not judged


class RisingSteps(Struct):
    """Each value is above all before it. ``at``: when it was seen, in ns; ``places``: where."""

    at: list[int] = []
    values: list[int] = []
    places: list[Place] = []

    def before(self, at: int) -> tuple[int, Place] | None:
        """The highest value that was seen before a time."""
        last = bisect_left(self.at, at) - 1
        return (self.values[last], self.places[last]) if last >= 0 else None

    def add(self, value: int, place: Place) -> None:
        """A value that is not above the last one changes nothing."""
        if self.values and value <= self.values[-1]:
            return
        self.at.append(max(place.at, self.at[-1]) if self.at else place.at)  # two clocks may differ
        self.values.append(value)
        self.places.append(place)
        if len(self.at) > 2 * MOST_STEPS:
            del self.at[:MOST_STEPS], self.values[:MOST_STEPS], self.places[:MOST_STEPS]

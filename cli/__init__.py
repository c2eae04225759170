"""The command line: the only room that knows all the others. It parses flags, connects rooms and prints.

``commands`` has one module per command, ``options`` what several commands have. ``start_target`` starts what
verify and explore check, ``watched_brokers`` what gate and observe use; ``reporting`` opens reports. Other
rooms are imported when a command needs them.
"""

from __future__ import annotations

import time

LOADED_AT = time.monotonic()  # soon after the process has started: all other modules of a command come later

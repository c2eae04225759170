"""What checks, traces and their readers share: a limit, and how the names of a run begin."""

from __future__ import annotations

DEFAULT_WITHIN_S = 1.0  # for what a check expects, unless it says otherwise; slack for a slow target is added
OBJECT_PREFIX = "PL"  # every object that a run creates on its target; the token of the run follows

"""Limits that checks and traces share."""

from __future__ import annotations

DEFAULT_WITHIN_S = 1.0  # for what a check expects, unless it says otherwise; slack for a slow target is added

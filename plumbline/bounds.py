"""Bounds on what input may cost: memory, time and numbers of entries, each with the result of exceeding it.

Input comes from servers, clients, captures and files that nobody trusts. A bound is a constant here, with its unit,
and SECURITY.md lists all of them. Exceeding one is a verdict of the check or a clear error, never a traceback.
"""

from __future__ import annotations

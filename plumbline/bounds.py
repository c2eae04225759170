"""Bounds on what input may cost: memory, time and numbers of entries, each with the result of exceeding it.

Servers, clients, captures and files are not trusted. A bound is a constant here, with its unit.
SECURITY.md lists them. Exceeding one is a verdict of the check or a clear error, never a traceback.
"""

from __future__ import annotations

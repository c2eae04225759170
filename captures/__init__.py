"""Captures, always pcapng: write, read, reassemble, redact, filter, show, compare; their operations."""

"""Faults of the proxy: their language, their injection, and the API that changes them at run time."""

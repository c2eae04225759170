"""The server under test: its URL, how a check gets in, its configurations, and servers of our own like it."""

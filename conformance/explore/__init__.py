"""Stateful exploration: random commands to a target and to a reference, and a trace where they differ."""

"""Checks of the client protocol of NATS."""

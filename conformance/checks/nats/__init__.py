"""Checks of NATS servers."""

"""Checks of JetStream."""

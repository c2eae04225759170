"""Defects of topology: queues, exchanges, bindings, and where they lead."""

"""Defects of messages: publishing, delivering, acknowledging, expiry, dead letters, and whose turn it is."""

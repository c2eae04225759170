"""Defects of the core: INFO, CONNECT, subscriptions, publishing, headers, errors."""

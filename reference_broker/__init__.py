"""Reference brokers: a pure state machine per protocol, a thin asyncio shell, and deliberate defects.

Nothing here imports ``conformance``: the judge and the judged do not know each other.
"""

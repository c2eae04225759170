"""A pull consumer with explicit acks under faults: its deliveries, their acks, and what it states."""

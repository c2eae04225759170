"""Real servers by name: how they are obtained, configured and started. Needs only ``packaging``."""

"""Real servers by name: how they are obtained, configured and started. Standard library and ``packaging`` only."""

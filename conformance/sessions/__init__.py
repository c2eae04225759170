"""What a check talks through: its session, the connections of it, and everything exchanged on them."""

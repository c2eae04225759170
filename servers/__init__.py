"""Real servers by name: how they are obtained, configured and started.

Needs only ``packaging``; servers of a user's file (``user_targets``) also ``msgspec``.
"""

"""How long tests wait for what must come: only a hang lasts longer, and a busy machine is slow."""

HANGS_AFTER_S = 300.0

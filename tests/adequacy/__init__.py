"""Are the checks adequate? Mutants by rule of both reference cores, and the checks that kill them."""

"""Client libraries that are wrong on purpose, in one exact way each: the broken twins of scenarios."""

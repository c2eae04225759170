"""A site of many runs: targets against groups of requirements, and what changed from one run to the next."""

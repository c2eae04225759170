"""The conformance suite: requirements, the checks that verify them, and the verdicts that follow."""

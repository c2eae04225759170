"""One module per command, named after it: its options, its help text and what it prints."""

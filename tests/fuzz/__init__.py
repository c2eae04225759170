"""Random input for every part that reads what others have written: ``make fuzz``."""

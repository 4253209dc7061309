"""What everyone who changes a line waits for."""

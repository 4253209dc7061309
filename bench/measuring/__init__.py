"""What all measurements share: timing, memory, targets, result files."""

"""The numbers of the driver and its engines."""

"""Numbers and tables that users write: on the command line, in CSV, JSON and npy files."""

"""One file per command: it is found by its `main`. `options` is what they share."""

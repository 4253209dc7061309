"""A network on one machine, with delay, loss and partitions, for Ray's nodes and Flower's."""

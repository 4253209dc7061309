"""What synchronous rounds and asynchronous arrivals share: workers train, the master combines."""

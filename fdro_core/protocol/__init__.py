"""What the parts promise each other: algorithms, problems, engines and the messages between them."""

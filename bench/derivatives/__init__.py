"""What derivatives of the worst case cost and how exact they are."""

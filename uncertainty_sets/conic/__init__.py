"""Any set by a conic solver: its program, the answer, and a certificate of our own."""

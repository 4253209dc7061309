"""What every algorithm with a master needs: handshake, roster, master, worker, checkpoints."""

"""What every algorithm with a master needs: who is there, the first rounds, checkpoints."""

"""Robust Markov decision processes: an oracle for every state and action, and proved bounds on the value."""

"""The numbers promised for robust Markov decision processes, in `__main__`."""

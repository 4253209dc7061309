"""The numbers promised for robust Markov decision processes."""

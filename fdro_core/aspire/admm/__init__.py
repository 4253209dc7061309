"""AspireEase, the paper's Algorithm 1: every worker keeps w_j and φ_j of its own."""

"""AspireModels, our own form: the master keeps quadratic models of the workers' losses."""

"""ASPIRE-EASE: asynchronous federated distributionally robust optimisation."""

"""Differential privacy at the worker: settings, mechanism, noise, accounting, ledger (docs/privacy.md)."""

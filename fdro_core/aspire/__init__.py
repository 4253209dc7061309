"""ASPIRE-EASE: its settings, its master and its worker."""

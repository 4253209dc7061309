"""Attack the oracles: adversarial cases, with every answer checked by independent formulas."""

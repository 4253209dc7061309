"""The oracles under attack: adversarial cases for a given time, every answer judged by independent formulas."""

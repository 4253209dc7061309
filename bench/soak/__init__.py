"""The oracles under attack: adversarial cases, every answer judged by formulas of its own."""

"""From records to pages: `tables`, `reporting`, `figures`, `races`, and the paper's numbers."""

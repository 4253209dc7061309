"""How results are shown: `tables` for terminal and Markdown, `figures` in one style."""

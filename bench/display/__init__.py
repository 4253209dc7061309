"""How results are shown: tables for terminal and Markdown, the style of figures, labels at lines."""

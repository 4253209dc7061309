"""Somebody else's set, closed form, backend, baseline and engine; nothing in fdro knows of them."""

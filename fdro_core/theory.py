"""Deprecated name of `fdro_core.aspire.theory`, which has the paper's formulas."""

from fdro_core.moved import forward

__getattr__ = forward(__name__, "fdro_core.aspire.theory")

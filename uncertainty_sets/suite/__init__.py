"""`check_set`: the properties that every set must have, checked on one."""

from uncertainty_sets.suite.report import SetReport, check_set

__all__ = ["SetReport", "check_set"]

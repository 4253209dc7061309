"""`check_set`: the properties that every set must have, checked on one."""

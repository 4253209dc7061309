"""The commands of `fdro`, a file each: what the decorator `command` says there is all that registers it."""

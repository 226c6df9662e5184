"""The command `relpe`."""

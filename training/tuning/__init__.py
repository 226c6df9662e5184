"""Tuning of a model to a few pieces of one's own: the command `relpe-train tune`."""

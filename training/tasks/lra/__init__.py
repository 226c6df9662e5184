"""The tasks of the Long Range Arena (Tay et al., 2021)."""

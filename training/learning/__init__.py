"""Optimisation, loss, seeding and distributed set-up."""

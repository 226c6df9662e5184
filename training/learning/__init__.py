"""Optimization, losses, seeding and distributed set-up."""

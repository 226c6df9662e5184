"""Errors that a user's input causes."""


class TrainingError(ValueError):
    """Data, configuration or a run cannot be used; says what was found and what to do."""

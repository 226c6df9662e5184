"""Tasks: data, model and loss of an experiment."""

"""Training: data sets, tasks, evaluation, export of weights, and the command relpe-train."""

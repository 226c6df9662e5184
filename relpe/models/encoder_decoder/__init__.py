"""Models that read one sequence and write another, and their attention."""

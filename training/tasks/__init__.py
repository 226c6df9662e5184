"""Tasks: what is trained on what; they differ here and nowhere else."""

"""Tasks that turn one sequence or tree into another."""

"""Making music with trained models: continuation, generation, the page and the command relpe."""

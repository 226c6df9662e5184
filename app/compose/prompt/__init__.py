"""An upload as the model reads it: its part that is read, its beats, and a report for the user."""

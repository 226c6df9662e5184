"""Run folders: fitting, resuming, logging."""

"""The page of the report, and its plots."""

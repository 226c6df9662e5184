"""The report on a listening test: screening, statistics, and one page with its plots."""

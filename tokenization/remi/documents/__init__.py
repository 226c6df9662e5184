"""Plans, headers, and documents of which some bars or tracks are to be written."""

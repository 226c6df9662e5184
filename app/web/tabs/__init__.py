"""The tabs of the page: their widgets and texts."""

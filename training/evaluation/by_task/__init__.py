"""What `relpe-train evaluate` measures of each kind of task without a corpus of music."""

"""What adapts finished models: the commands `relpe-train tune` and `relpe-train fit-pointer`."""

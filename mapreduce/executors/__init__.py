"""Who runs the rounds of a plan."""

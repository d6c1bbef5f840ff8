"""What jobs on YARN share, whoever starts them: shipped code, and what its tasks tell."""

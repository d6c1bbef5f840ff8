"""What the runner for EMR knows of AWS."""

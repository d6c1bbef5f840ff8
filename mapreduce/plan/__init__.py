"""What is trained, as data that does not change."""

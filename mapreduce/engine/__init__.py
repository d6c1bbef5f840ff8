"""What computes by map and reduce, whoever runs it."""

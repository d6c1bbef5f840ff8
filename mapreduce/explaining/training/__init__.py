"""A round of a training, run again and explained."""

"""A swarm: workers that take parts of a file, predict them, and end when none is left."""

"""What the runner ``hadoop`` knows of a cluster: where it is, how to ask it, what tasks need."""

"""Loading a job and running it on a runner."""

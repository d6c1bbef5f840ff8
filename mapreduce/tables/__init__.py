"""Programs over data: sums over slices of a dataset, and imports of tables by tasks."""

"""Search for hyperparameters: the outer map, whose units are whole trainings."""

"""Recipes: how the columns of a table, as people have them, become the features of a model."""

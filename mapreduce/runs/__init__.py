"""What a training keeps in its folder."""

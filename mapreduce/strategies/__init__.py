"""What a round means: which partial results mappers make, and what reducers do with them."""

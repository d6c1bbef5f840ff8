"""How partial results become one: their messages, their sums and the canonical tree."""

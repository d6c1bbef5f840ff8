"""How partial results become one: the aggregator's contract and the canonical tree."""

"""What experiments have in common: their shape, the list of claims, recordings."""

"""Results of later papers about Verus and other schemes: figures, orders and bounds."""

"""What later papers show of Verus and others: figures, orders and bounds."""

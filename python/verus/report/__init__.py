"""Tables, figures and pages, drawn from saved results only."""

"""What people see: tables, figures and pages, drawn from saved results only."""

"""A search over a controller's constants: its file, its rows, its race, its folder and how it is judged."""

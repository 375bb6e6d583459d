"""The web console: its files, and the application that serves them."""

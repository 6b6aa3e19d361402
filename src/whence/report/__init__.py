"""Tables and plots to one HTML page."""

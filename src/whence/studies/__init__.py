"""One module per study: grid, scenario, measures, figures, expected numbers."""

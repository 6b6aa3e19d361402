"""The tour: the five systems of the papers in their own environments, in a minute or two."""

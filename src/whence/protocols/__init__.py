"""One module per algorithm, named as in its paper; `registry` knows them all."""

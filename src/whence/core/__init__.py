"""What every protocol is made of: no I/O, no clock, no randomness, standard library only."""

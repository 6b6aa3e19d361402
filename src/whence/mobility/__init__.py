"""Where contact plans come from: traces of other tools, timetables, paths, and made-up cities."""

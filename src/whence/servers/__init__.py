"""Systems of servers as processes (paper 004): one server, its administration, and who starts them all."""

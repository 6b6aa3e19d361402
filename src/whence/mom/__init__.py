"""Message-oriented middleware (paper 004): durable servers and the planning of domains. No I/O here."""

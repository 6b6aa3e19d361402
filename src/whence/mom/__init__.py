"""Message-oriented middleware (paper 004): durable servers, agents, and the planning of domains. No I/O here."""

"""The links between nodes: graphs, cubes, contact plans, domains, peer sampling."""

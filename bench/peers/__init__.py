"""Other systems for groups of processes, under the load of `bench_peers.py`: one function per system."""

"""What runs inside a container: sent there as source at start, standard library only."""

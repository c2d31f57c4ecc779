"""Labs: clusters of simulated machines, containers or virtual, on this computer."""

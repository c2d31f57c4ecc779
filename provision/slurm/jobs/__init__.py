"""What a user's own job script says, and which mistakes are in it; nothing is run."""

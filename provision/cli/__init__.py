"""The command line: Click's commands, and what they share. Chooses and prints; decides nothing."""

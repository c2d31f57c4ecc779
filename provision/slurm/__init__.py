"""Slurm's files from the declared cluster. Pure but for rendering templates."""

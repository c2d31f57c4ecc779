"""The words that all others use: checks, the declared cluster, generic resources, facts, versions. Pure."""

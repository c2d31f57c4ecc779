"""The only place where something is judged: one file a subject, facts and wants in, checks out. Pure."""

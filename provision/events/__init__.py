"""What happened in a run: events folded into a report, and the exit code that follows from it. Pure."""

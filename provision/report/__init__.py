"""What a person sees: tables, progress, JSON documents."""

"""Claims names that others have."""

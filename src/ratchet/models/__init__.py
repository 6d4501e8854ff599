"""Open weights on this machine: fetching them, and serving them to policies."""

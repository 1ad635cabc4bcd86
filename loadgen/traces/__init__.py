"""Pure: one file per foreign trace format."""

"""Pure: a run directory in, a Report out."""

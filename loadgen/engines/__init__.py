"""One file per engine: what is known about it, as data."""

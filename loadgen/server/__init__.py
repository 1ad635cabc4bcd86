"""One engine process: start, facts, metrics, stop."""

"""What watches a run while it goes."""

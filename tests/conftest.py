"""Its folder goes on the path: every test may import `fakes`."""

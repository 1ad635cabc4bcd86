"""Cases with planted truth for `benchmarks/truth.py`: machines, traffic, and four kinds of trials."""

"""Sends requests on time and records what comes back."""

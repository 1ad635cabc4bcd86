"""An engine whose truth is known: vLLM's scheduler and a step-time model, in virtual time or behind a real front."""

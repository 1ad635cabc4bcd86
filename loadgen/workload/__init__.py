"""Pure: a scenario in, a plan out. No network, no clock."""

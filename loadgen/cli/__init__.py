"""The verbs: one short file each; the only room that prints."""

"""Pure: a Report in, text, JSON, HTML or Prometheus text out."""

"""What operators and their tools speak: health, readiness, metrics."""

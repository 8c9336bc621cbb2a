"""Source trees: pins, checkout, hipify, diffbase tags, and what a tree holds right now."""

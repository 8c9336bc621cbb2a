"""Doing what a plan says: processes side by side, each one step; what they show, what they cost."""

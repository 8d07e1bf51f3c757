"""Held-out scores, with their uncertainty."""

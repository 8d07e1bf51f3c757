"""A run's folder as a page in the browser."""

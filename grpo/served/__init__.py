"""Models behind an OpenAI-compatible API, sampled like engines of our own."""

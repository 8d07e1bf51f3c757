"""Code problems as others publish them, read into the tests that the `code` verifier takes."""

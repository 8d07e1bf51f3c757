"""Where untrusted code runs: Docker containers, the runner inside them, and the judge outside."""

"""What is right: verdicts on completions, and the Ray fleet that reaches them."""

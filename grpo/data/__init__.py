"""From files and hub data sets to problems, and from problems to the prompts of a step."""

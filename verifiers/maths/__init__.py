"""Mathematical answers: read strictly, compared by the type of the reference."""

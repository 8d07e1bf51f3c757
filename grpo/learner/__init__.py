"""The learner: the model, its optimizer and the update, one process for each rank."""

"""Pictures of ideas, one module for each notebook: drawing code that no lesson is about."""

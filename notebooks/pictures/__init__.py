"""Pictures of ideas, mostly one module for each notebook: drawing code that no lesson is about."""

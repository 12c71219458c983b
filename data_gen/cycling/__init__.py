"""CyclingVQA: multiple-choice questions on photographs taken from a bicycle; its records, prompts and items."""

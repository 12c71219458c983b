"""DriveMLLM, the first version of SURDS: its own records, filters, questions and prompts."""

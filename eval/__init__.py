"""Evaluation: engines, resumable runs, figures with floors and intervals, reports."""

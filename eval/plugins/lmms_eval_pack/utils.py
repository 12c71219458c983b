"""What drive_surds.yaml calls, from the installed evaluator: python -m pip install --no-deps -e REPOSITORY."""

from eval.plugins.lmms_eval_task import doc_to_text, doc_to_visual, mean_of_tasks, mean_of_units, process_results

__all__ = ["doc_to_text", "doc_to_visual", "mean_of_tasks", "mean_of_units", "process_results"]

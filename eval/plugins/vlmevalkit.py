"""A table for VLMEvalKit, and our scores of the table of predictions that it writes.

    python eval/plugins/vlmevalkit.py outputs/MODEL/MODEL_SURDS.xlsx --data data/surds/questions.jsonl

VLMEvalKit takes the table as a custom multiple-choice set when it lies in its LMUData folder, adds the options and asks
for a letter; points have no options and are answered freely. Its own accuracy knows no pairs and no points: score the
predictions here. A letter, an option's text and an answer in our tags all count.
"""

from __future__ import annotations

import argparse
import base64
import csv
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from data_gen.columns import aligned, percent
from data_gen.command_line import HelpFormatter, UsageError
from data_gen.images import open_rgb
from data_gen.prompts import prompt_text
from data_gen.records import Question, RecordError, read_questions
from eval.plugins.unit_scores import graded, scores_by_task
from rewards.boxes import FRAME_KINDS, CoordinateFrame
from rewards.choice import letters_of, read_choice
from rewards.response import last_answer

TABLE_NAME = "SURDS.tsv"
LETTERS = "ABCD"
COLUMNS = ("index", "image", "question", *LETTERS, "answer", "category", "id", "image_name")
JPEG_QUALITY = 95


def main(argv: Sequence[str] | None = None) -> int:
    """Print the scores of a table of predictions; 0, or 2 with the remedy when it cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("table", type=Path, help="the .tsv or .xlsx of predictions that VLMEvalKit wrote")
    parser.add_argument("--data", type=Path, required=True, help="the questions.jsonl that was exported")
    parser.add_argument("--frame", choices=FRAME_KINDS, default="original", help="coordinates the model writes")
    options = parser.parse_args(argv)
    try:
        questions = read_questions(options.data)
        scores = score_table(options.table, questions, CoordinateFrame(options.frame))
    except (UsageError, RecordError) as error:
        print(f"eval/plugins/vlmevalkit.py: {error}", file=sys.stderr)
        return 2
    print("\n".join(aligned([["task", "score"], *([task, percent(value)] for task, value in scores.items())])))
    return 0


def write_table(questions: Sequence[Question], image_root: Path, frame: CoordinateFrame, out: Path) -> None:
    """Write the table to the file `out`. An image stands in its first row; others name that row's index.

    Raises RecordError when an image cannot be read or is not the recorded one.
    """
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(_rows(questions, image_root, frame))


def score_table(path: Path, questions: Sequence[Question], frame: CoordinateFrame) -> dict[str, float]:
    """Task or `score` -> score of a table of predictions, strictly read; questions without a row count as wrong.

    Raises UsageError for a table that cannot be read or is about other questions.
    """
    from eval.replay import open_replayed

    stored = open_replayed(path).engine.matched(questions).stored
    return score_predictions({name: reply.output for name, reply in stored.items()}, questions, frame)


def score_predictions(
    predictions: Mapping[str, str], questions: Sequence[Question], frame: CoordinateFrame
) -> dict[str, float]:
    """The same from predictions by question id. Raises UsageError when none of them is known."""
    if not any(question.id in predictions for question in questions):
        raise UsageError("no prediction has the id of a question: were these questions exported?")
    answers = [
        graded(question, in_our_form(predictions.get(question.id, ""), question), frame, "strict")
        for question in questions
    ]
    return scores_by_task(answers)


def in_our_form(prediction: str, question: Question) -> str:
    """A prediction as our grading reads it: a letter as its option, a text without tags in tags.

    What stands in answer tags is left as it is, but for a lone letter: it is read as strictly as anywhere.
    """
    answer = last_answer(prediction)
    lone = answer is None or len(answer.strip(" .:()*")) == 1
    letter = read_choice(prediction, question.options) if question.options and lone else None
    if letter:
        return f"<answer>{question.options[letters_of(question.options).index(letter)]}</answer>"
    if answer is None:
        return f"<answer>{prediction.rpartition('</think>')[2].strip()}</answer>"
    return prediction


def _rows(questions: Sequence[Question], image_root: Path, frame: CoordinateFrame) -> Iterator[dict[str, str | int]]:
    first_row: dict[str, int] = {}
    for index, question in enumerate(questions):
        shown_at = first_row.setdefault(question.image, index)
        options = dict(zip(LETTERS, question.options, strict=False))
        yield {
            "index": index,
            "image": _jpeg(image_root, question) if shown_at == index else shown_at,
            "question": _wording(question, frame),
            **{letter: options.get(letter, "") for letter in LETTERS},
            "answer": LETTERS[question.options.index(question.answer_text)] if options else question.answer_text,
            "category": question.task,
            "id": question.id,
            "image_name": question.image,
        }


def _wording(question: Question, frame: CoordinateFrame) -> str:
    """What is asked, without options, which VLMEvalKit adds, and for options without a format of our own."""
    lines = prompt_text(question.task, question.question, (), frame, question.image_size, "direct").split("\n")
    return lines[0] if question.options else "\n".join(lines)


def _jpeg(image_root: Path, question: Question) -> str:
    buffer = io.BytesIO()
    open_rgb(image_root / question.image, question.image_size).save(buffer, "JPEG", quality=JPEG_QUALITY)
    return base64.b64encode(buffer.getvalue()).decode()


if __name__ == "__main__":
    sys.exit(main())

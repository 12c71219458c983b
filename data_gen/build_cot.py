"""Questions -> checked reasoning traces, the training data of the SFT cold start.

    python data_gen/build_cot.py --data data/surds/questions.jsonl --out data/cot

writes the traces from the geometry of the scenes (the oracle). With models behind OpenAI-compatible servers,

    python data_gen/build_cot.py --data data/surds/questions.jsonl --out data/cot \\
        --reasoner http://HOST:8000/v1 --reasoner-model NAME --writer http://HOST:8001/v1 --writer-model NAME

it runs four stages: a strong reasoner explains a few examples of each task (reason), the writer distils rules from
them into rules/TASK.md, which may be edited (rules), writes a trace for every question (write), and judges and
corrects it before our own checks decide (verify). An interrupted run goes on with --resume. OPENAI_API_KEY holds the
key, where one is needed.

Either way: cot.jsonl (a question's fields with its trace), summary.json and report.html (kept and dropped by reason,
lengths, costs, some traces with their images), and a manifest.json that leads to the images.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from data_gen.command_line import UsageError, ends_well, parse_with_config
from data_gen.folders import OutputFolder
from data_gen.records import RecordError
from data_gen.teaching.by_oracle import build_by_oracle
from data_gen.teaching.by_servers import build_by_servers
from data_gen.teaching.options import make_parser, teacher_of
from data_gen.teaching.selection import read_selection

BUILDERS = {"oracle": build_by_oracle, "servers": build_by_servers}


def main(argv: Sequence[str] | None = None) -> int:
    """Build the traces; 0, or 2 with the remedy on standard error when it cannot be done."""
    parser = make_parser(__doc__ or "")
    arguments = parse_with_config(parser, argv)
    try:
        with ends_well(parser):
            build = BUILDERS[teacher_of(arguments)]
            selection, questions = read_selection(arguments)
            inputs = (arguments.data, *([arguments.rules] if arguments.rules else []))
            folder = OutputFolder(arguments.out, "traces", arguments.resume, arguments.overwrite, inputs)
            folder.check()
            build(arguments, selection, questions, folder)
    except (UsageError, RecordError, OSError) as error:
        print(f"build_cot: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A second model that reads what the rules leave open: which choice did this reply settle on?

Verdicts are kept in the run folder as they come, so that nothing is judged twice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from data_gen.chat import ChatClient, user_message
from data_gen.command_line import UsageError
from data_gen.cycling.records import CyclingItem
from data_gen.in_order import map_in_order
from eval.cycling_scores import Outcome
from eval.runner import digest
from rewards.choice import read_choice

VERDICTS_FILE = "judged.jsonl"
IN_FLIGHT = 8
MOST_TOKENS = 256
_PROMPT = """Below is a multiple-choice question and what somebody replied to it. Find out which choice the reply
settles on. The question itself is not yours to answer, and a wrong choice is to be reported as it stands.

Question: {question}
{choices}

The reply, between the lines:
-----
{reply}
-----

Give the letter of the choice that the reply settles on. Give NONE if it settles on no choice, or on several. Nothing
else."""


@dataclass(frozen=True)
class Verdict:
    """What the judge said of one reply. key: a digest of the judge and what it was shown; choice: a letter or None."""

    id: str
    key: str
    said: str
    choice: str | None


def judge_prompt(item: CyclingItem, output: str) -> str:
    """The text that the judge is shown: of the reply what stands outside its thinking, as the rules read it."""
    outside = output.rpartition("</think>")[2].partition("<think>")[0]
    choices = "\n".join(f"{letter}. {text}" for letter, text in zip(item.letters, item.choices, strict=True))
    return _PROMPT.format(question=item.question, choices=choices, reply=outside.strip())


def judge(outcomes: Sequence[Outcome], client: ChatClient, path: Path) -> dict[str, Verdict]:
    """Verdicts by item id for outcomes that the rules left open; those in the file are not asked for again.

    Raises ChatError (a UsageError) when the server is not there or refuses; what it said before is kept.
    """
    stored = stored_verdicts(path)
    prompts = {outcome.item.id: judge_prompt(outcome.item, outcome.output) for outcome in outcomes}
    keys = {name: digest(f"{client.model}\n{prompt}") for name, prompt in prompts.items()}
    left = list({keys[o.item.id]: o for o in outcomes if keys[o.item.id] not in stored}.values())
    if left:
        client.check()

    def ask(outcome: Outcome) -> Verdict:
        item = outcome.item
        message = user_message(prompts[item.id])
        said = client.ask(item.id, [message], temperature=0, max_tokens=MOST_TOKENS).text
        return Verdict(item.id, keys[item.id], said, read_choice(said, item.choices))

    with path.open("a", encoding="utf-8") as file:
        for verdict in map_in_order(ThreadPoolExecutor(IN_FLIGHT), ask, left, 2 * IN_FLIGHT):
            file.write(json.dumps(asdict(verdict), ensure_ascii=False) + "\n")
            file.flush()
            stored[verdict.key] = verdict
    return {name: replace(stored[key], id=name) for name, key in keys.items()}


def stored_verdicts(path: Path) -> dict[str, Verdict]:
    """Verdicts by key; a last line that a kill cut short is removed. Raises UsageError for another broken line."""
    if not path.exists():
        return {}
    whole = path.read_bytes()
    complete = whole[: whole.rfind(b"\n") + 1]
    if complete != whole:
        path.write_bytes(complete)
    verdicts = {}
    for number, line in enumerate(complete.splitlines(), 1):
        try:
            verdict = Verdict(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise UsageError(f"{path}, line {number}: no verdict ({error}); delete the file to judge anew") from error
        verdicts[verdict.key] = verdict
    return verdicts

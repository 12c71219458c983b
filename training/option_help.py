"""The parser of the training scripts: help in groups, ours first, and a word about an option that does not exist."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from trl import TrlParser

from data_gen.command_line import HelpFormatter


class GroupedHelp(HelpFormatter):
    """Help that writes the value of an option once, after its spellings, and `--no_x` as what it is."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action)) if action.nargs != 0 else ""
        return f"{', '.join(action.option_strings)} {value}".rstrip()

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        return "VALUE"

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if isinstance(action, argparse._StoreFalseAction):
            return f"Turns --{action.dest} off."
        return super()._get_help_string(action)


class OptionParser(TrlParser):
    """TRL's parser of dataclasses, a group of the help per dataclass, under its `_argument_group_name`."""

    def __init__(self, classes: Sequence[type], doc: str | None) -> None:
        super().__init__(
            list(classes),
            usage="%(prog)s --data FILE.jsonl [--config FILE.yaml] [options]",
            description=doc,
            formatter_class=GroupedHelp,
            epilog="--config FILE.yaml sets any of these options; the command line wins, and unknown keys fail.",
        )

    def parse(self, words: Sequence[str]) -> list[Any]:
        """An instance of each dataclass. Exits with 2 on an unknown option, naming the nearest that there is."""
        *parts, unknown = self.parse_args_and_config(words, return_remaining_strings=True)
        if unknown:
            name = unknown[0].split("=")[0]
            self.error(f"unknown option {name}; {nearest(name, self._option_string_actions)}")
        return parts


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like a wrong one, as a question; where none is like it, how to list them."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]}?" if near else "--help lists them"

"""What the entry points share: `--config FILE.yaml`, help that keeps its lines, and the error that ends with 2."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class UsageError(ValueError):
    """What was asked for cannot be done; the message says what to give instead. Entry points exit with 2."""


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Help that keeps the lines of the description and tells every default that is more than "none"."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        told = action.help is not None and "default" in action.help
        return action.help if told or action.default in (None, False) else super()._get_help_string(action)


def parse_with_config(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """The options of `--config FILE.yaml` and the command line, which wins.

    The YAML's keys are the options' names with underscores or hyphens. Exits with 2 on an unknown key or option.
    """
    parser.add_argument("--config", type=Path, help="YAML file of options; what the command line gives wins")
    given = list(sys.argv[1:] if argv is None else argv)
    config = config_of(given)
    if config is None:
        return parser.parse_args(given)
    try:
        words = [word for name, value in read_options(config).items() for word in _words(parser, name, value)]
    except UsageError as error:
        parser.error(str(error))
    return parser.parse_args([*words, *given])


def config_of(argv: Sequence[str]) -> Path | None:
    """The file that `--config` names on a command line, or None."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--config", type=Path)
    path: Path | None = first.parse_known_args(argv)[0].config
    return path


def read_options(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds. Raises UsageError when it is none or cannot be read."""
    import yaml

    if not path.is_file():
        raise UsageError(f"no configuration at {path}")
    try:
        options = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no YAML: {error}") from error
    if not isinstance(options, dict):
        raise UsageError(f"{path} must hold `option: value` lines, got {type(options).__name__}")
    return options


def _words(parser: argparse.ArgumentParser, name: str, value: Any) -> list[str]:
    """A key and its value as words of the command line. Raises UsageError for an unknown key."""
    option = f"--{str(name).replace('_', '-')}"
    action = parser._option_string_actions.get(option)
    if action is None:
        known = sorted(word for word in parser._option_string_actions if word.startswith("--"))
        raise UsageError(f"unknown key {name!r} in the configuration; known options: {' '.join(known)}")
    if action.nargs != 0:
        return [] if value is None else [f"{option}={value}"]
    if not isinstance(value, bool):
        raise UsageError(f"{name} is true or false, got {value!r}")
    return [option] if value else []


def positive(text: str) -> int:
    """A whole number of at least 1, for the `type` of an option."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number of at least 1 is needed, got {text!r}")
    return int(text)


def version_name(text: str) -> str:
    """The name of a nuScenes version folder, for the `type` of an option; completion by the shell adds a slash."""
    name = text.rstrip("/")
    if not name or "/" in name:
        raise argparse.ArgumentTypeError(f"the name of a folder in the nuScenes root is needed, got {text!r}")
    return name


@contextmanager
def ends_well(parser: argparse.ArgumentParser, *errors: type[Exception]) -> Iterator[None]:
    """Turn the errors that a user can mend into one line and an exit with 2, and an interruption into 130."""
    try:
        yield
    except errors as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    except KeyboardInterrupt:
        print(f"\n{parser.prog}: interrupted; go on with the same command and --resume", file=sys.stderr, flush=True)
        if any(thread.name.startswith("ThreadPoolExecutor") for thread in threading.enumerate()):
            os._exit(130)  # a thread that waits for a server would be waited for
        sys.exit(130)


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

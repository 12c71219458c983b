"""A configuration dataclass filled from `--config FILE.yaml` and the command line, which wins; unknown keys fail."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

Config = TypeVar("Config")


class UsageError(ValueError):
    """What was asked for cannot be done; the message says what to give instead. Entry points exit with 2."""


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Help that keeps the lines of the description and tells every default that is more than "none"."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, False) else super()._get_help_string(action)


def parse_config(config_class: type[Config], argv: Sequence[str] | None, description: str) -> Config:
    """The configuration of a run; the options are the fields of a dataclass whose metadata holds their help.

    argv: the command line without the program's name, None for that of the process. The lines of the YAML file go
    through the same parser as the command line, ahead of it: same names, same types, same complaints.
    Exits with 2 on an unknown option or key, and on a value of the wrong type.
    """
    from transformers.hf_argparser import HfArgumentParser

    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--config")
    known, rest = first.parse_known_args(argv)
    parser = HfArgumentParser(
        config_class,  # type: ignore[arg-type]
        description=description,
        allow_abbrev=False,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--config", help="A YAML file of options; what the command line gives wins.")
    try:
        given = [*yaml_arguments(Path(known.config)), *rest] if known.config else rest
    except UsageError as error:
        parser.error(str(error))
    values = vars(parser.parse_args(given))
    return config_class(**{field.name: values[field.name] for field in fields(config_class)})  # type: ignore[arg-type]


def yaml_arguments(path: Path) -> list[str]:
    """The options of a YAML mapping as command-line words. Raises UsageError when it is none or cannot be read."""
    import yaml

    if not path.is_file():
        raise UsageError(f"no configuration at {path}")
    try:
        options = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is no YAML: {error}") from error
    if not isinstance(options, dict):
        raise UsageError(f"{path} must hold `option: value` lines, got {type(options).__name__}")
    return [f"--{name}={value}" for name, value in options.items() if value is not None]


def save_config(config: Any, path: Path) -> None:
    """Write the resolved configuration, so that `--config` of this file repeats the run."""
    import yaml

    path.write_text(yaml.safe_dump(asdict(config), sort_keys=False, allow_unicode=True), encoding="utf-8")

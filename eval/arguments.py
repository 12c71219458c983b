"""A configuration dataclass filled from `--config FILE.yaml` and the command line, which wins; unknown keys fail."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

from data_gen.command_line import HelpFormatter, UsageError, config_of, read_options

Config = TypeVar("Config")


def parse_config(config_class: type[Config], argv: Sequence[str] | None, description: str) -> Config:
    """The configuration of a run; the options are the fields of a dataclass whose metadata holds their help.

    argv: the command line without the program's name, None for that of the process. The lines of the YAML file go
    through the same parser as the command line, ahead of it: same names, same types, same complaints.
    Exits with 2 on an unknown option or key, and on a value of the wrong type.
    """
    from transformers.hf_argparser import HfArgumentParser

    rest = list(sys.argv[1:] if argv is None else argv)
    config = config_of(rest)
    parser = HfArgumentParser(
        config_class,  # type: ignore[arg-type]
        description=description,
        allow_abbrev=False,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--config", help="A YAML file of options; what the command line gives wins.")
    try:
        options = read_options(config) if config else {}
    except UsageError as error:
        parser.error(str(error))
    words = [f"--{name}={value}" for name, value in options.items() if value is not None]
    values = vars(parser.parse_args([*words, *rest]))
    return config_class(**{field.name: values[field.name] for field in fields(config_class)})  # type: ignore[arg-type]


def save_config(config: Any, path: Path) -> None:
    """Write the resolved configuration, so that `--config` of this file repeats the run."""
    import yaml

    path.write_text(yaml.safe_dump(asdict(config), sort_keys=False, allow_unicode=True), encoding="utf-8")

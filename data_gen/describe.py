"""Which describer names the objects, and the command-line options that choose it and tell it what it needs.

Each is imported when it is made: models and clients are heavy.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_gen.command_line import UsageError, positive
from data_gen.descriptions import Describer

BLIP_MODEL = "Salesforce/instructblip-vicuna-13b"  # the paper's; 27 GB of GPU memory in half precision


@dataclass(frozen=True)
class DescriberOptions:
    """Which describer, and what the describers need; each reads what concerns it.

    version_folder: the tables' folder (`truth`). workers: processes that open images (`colour`, `truth`).
    model: a folder, hub id (`blip`) or the server's name of a model (`endpoint`). endpoints: base URLs of servers used
    in turn, and concurrency: images in flight (`endpoint`). batch_size: objects at a time (`blip`).
    """

    name: str
    version_folder: Path
    workers: int = 1
    model: str = ""
    endpoints: tuple[str, ...] = ()
    concurrency: int = 16
    batch_size: int = 16

    @property
    def settings(self) -> dict[str, str]:
        """What decides the descriptions; the rest only decides how fast they come."""
        model = self.model or (BLIP_MODEL if self.name == "blip" else "")
        return {"describer": self.name} | ({"describer_model": model} if model else {})


def add_describer_options(group: argparse._ArgumentGroup) -> None:
    """The command-line options that `describer_options` reads; the script itself defines `--workers`."""
    add = group.add_argument
    add("--describer", choices=tuple(DESCRIBERS), default="colour", help="how objects get names (default: %(default)s)")
    add(
        "--describer-model",
        metavar="NAME",
        help=f"of blip: folder or hub id (default: {BLIP_MODEL}); of endpoint: the server's name",
    )
    add("--endpoint", type=_urls, metavar="URL[,URL]", help="of endpoint: OpenAI-compatible servers, used in turn")
    add("--concurrency", type=positive, metavar="N", help="of endpoint: images in flight (default: 16)")
    add("--describer-batch-size", type=positive, metavar="N", help="of blip: objects at a time (default: 16)")


def describer_options(namespace: argparse.Namespace, version_folder: Path) -> DescriberOptions:
    """The options of a command line that has `add_describer_options` and `--workers`.

    Raises UsageError for an option that the chosen describer does not read.
    """
    name = namespace.describer
    given: dict[str, Any] = {}
    for option, (field, readers) in _READ_BY.items():
        value = getattr(namespace, option)
        if value is not None and name not in readers:
            raise UsageError(
                f"--{option.replace('_', '-')} is read by --describer {' and '.join(readers)}, not by {name}"
            )
        given |= {} if value is None else {field: value}
    return DescriberOptions(name, version_folder, namespace.workers, **given)


def make_describer(options: DescriberOptions) -> Describer:
    """The describer of a name. Raises UsageError for what it needs and has not."""
    return DESCRIBERS[options.name](options)


def _urls(text: str) -> tuple[str, ...]:
    return tuple(url.strip() for url in text.split(",") if url.strip())


def _colour(options: DescriberOptions) -> Describer:
    from data_gen.describers.colour import colour_describer

    return colour_describer(options.workers)


def _truth(options: DescriberOptions) -> Describer:
    from data_gen.describers.truth import truth_describer

    return truth_describer(options.version_folder, options.workers)


def _endpoint(options: DescriberOptions) -> Describer:
    from data_gen.describers.endpoint import endpoint_describer

    if not (options.endpoints and options.model):
        raise UsageError(
            "--describer endpoint needs --endpoint http://HOST:PORT/v1 and --describer-model NAME, a vision "
            "model that is served there"
        )
    return endpoint_describer(options.endpoints, options.model, options.concurrency)


def _blip(options: DescriberOptions) -> Describer:
    from data_gen.describers.blip import blip_describer

    return blip_describer(options.model or BLIP_MODEL, options.batch_size)


DESCRIBERS: dict[str, Callable[[DescriberOptions], Describer]] = {
    "colour": _colour,
    "truth": _truth,
    "blip": _blip,
    "endpoint": _endpoint,
}

# Option of the command line -> field, and the describers that read it.
_READ_BY = {
    "describer_model": ("model", ("blip", "endpoint")),
    "endpoint": ("endpoints", ("endpoint",)),
    "concurrency": ("concurrency", ("endpoint",)),
    "describer_batch_size": ("batch_size", ("blip",)),
}

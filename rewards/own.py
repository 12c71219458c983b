"""A reward of the user's own, named by the dotted path of its function.

    --rewards format,acc,my_rewards.length.short_answer

`my_rewards/length.py` lies in the current folder or is installed. The function has the signature of ours,
`(completions, **columns) -> list[float | None]`: one finite number per completion, or None where it does not apply.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any


def own_reward(path: str) -> Callable[..., list[float | None]]:
    """The function at `package.module.function`, from the current folder or an installed package.

    Raises ValueError, saying what was tried, when there is no such module or function, or it cannot be called. An
    error inside the module surfaces as it is.
    """
    module_name, _, name = path.rpartition(".")
    module = _module(module_name, path)
    function: Any = getattr(module, name, None)
    if function is None:
        file = getattr(module, "__file__", None) or "a folder"  # that of a script may hide the one that was meant
        raise ValueError(f"reward {path!r}: the module {module_name} ({file}) has no {name!r}")
    if not callable(function):
        raise ValueError(f"reward {path!r} is of type {type(function).__name__}; a function is needed")
    return function


def _module(name: str, path: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # last, so that no file of the current folder hides a library
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module is there; what it imports is not
        raise ValueError(
            f"reward {path!r}: there is no module {error.name!r} in {here} or among the installed packages"
        ) from error
    except ValueError as error:  # an empty name between two dots, or a relative one
        raise ValueError(f"reward {path!r} is no dotted path package.module.function") from error

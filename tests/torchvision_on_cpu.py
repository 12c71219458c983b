"""Lets PyPI's torchvision, which is built for CUDA, be imported beside a torch without CUDA.

Its own library cannot be loaded there, and then it describes two operators that nobody has declared. They are declared
just before torchvision is imported; nothing here calls them. `launch/test_vllm.sh` has Python load this at its start.
"""

import importlib.abc
import sys

_declared = []


class BeforeTorchvision(importlib.abc.MetaPathFinder):
    """Finds nothing itself; it is asked first, and so learns when torchvision is about to be imported."""

    def find_spec(self, name, path=None, target=None):
        if name == "torchvision" and not _declared:
            import torch

            if not torch.cuda.is_available():
                library = torch.library.Library("torchvision", "DEF")
                _declared.append(library)  # what is declared ends with the object
                for operator in ("nms", "qnms"):
                    library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return None


sys.meta_path.insert(0, BeforeTorchvision())

"""Runs a script with vLLM as it must be on a CPU for its weights to be replaced and its tokens compared:

    python tests/vllm_on_cpu.py eval/surds.py --engine vllm ...

On a CPU vLLM packs the weights of linear layers and frees the originals, so that new ones have nowhere to go; here
they are kept and multiplied by plainly. Nothing is compiled, and sums are in float32 as in the engine `hf`.
"""

from __future__ import annotations

import os
import runpy
import sys
from functools import partial
from typing import Any

# Before vLLM is imported: little memory for the cache, the engine in this process, no compiler.
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


def keep_weight(layer: Any, remove_weight: bool) -> None:
    """In the place of vLLM's choice of a matrix product: PyTorch's, with the weight the layer has at that time."""
    from torch.nn import functional

    layer.cpu_linear = functional.linear


def prepare_vllm() -> None:
    """Change vLLM in this process as the module says."""
    os.environ.update(ENVIRONMENT)
    import trl.generation.vllm_generation
    import vllm
    from vllm.model_executor.layers import utils

    utils.dispatch_cpu_unquantized_gemm = keep_weight
    vllm.LLM = partial(vllm.LLM, enforce_eager=True, dtype="float32")
    trl.generation.vllm_generation.LLM = vllm.LLM


if __name__ == "__main__":
    prepare_vllm()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")

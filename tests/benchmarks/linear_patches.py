"""Patches of images embedded as a convolution and as a matrix product, forward and backward, one thread.

    python tests/benchmarks/linear_patches.py [--patches 4096] [--width 128] [--rounds 7]

Processor time, both ways by turns. 4,096 patches are those of 32 images of the mini model.
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from types import SimpleNamespace

import torch
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionPatchEmbed

from training.linear_patches import embed_patches_linearly


def seconds(embed: Qwen2_5_VisionPatchEmbed, patches_PC: torch.Tensor, half: bool) -> float:
    """Of one pass forward and backward."""
    embed.zero_grad()
    start = time.process_time()
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        given = embed(patches_PC)
    given.float().square().sum().backward()
    return time.process_time() - start


def main() -> None:
    """Time both ways in both precisions and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patches", type=int, default=4096, help="how many (default: %(default)s)")
    parser.add_argument("--width", type=int, default=128, help="channels of the tower (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="passes of each way (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    stock, ours = (Qwen2_5_VisionPatchEmbed(embed_dim=options.width) for _ in range(2))
    embed_patches_linearly(SimpleNamespace(model=SimpleNamespace(visual=SimpleNamespace(patch_embed=ours))))
    patches_PC = torch.randn(options.patches, 3 * 2 * 14 * 14)
    for half in (False, True):
        times = [(seconds(stock, patches_PC, half), seconds(ours, patches_PC, half)) for _ in range(options.rounds + 1)]
        slow, fast = (median(column) for column in zip(*times[1:], strict=True))
        name = "bfloat16" if half else "single precision"
        print(f"{name}: convolution {slow:.3f} s, matrix product {fast:.3f} s, {slow / fast:.1f} times as fast")


if __name__ == "__main__":
    main()

"""Asks a running vLLM server what GRPO asks it, but for the weights, which need a GPU: part of launch/test_vllm.sh.

    python tests/vllm_server_by_hand.py OUT URL

OUT: a folder that tests/vllm_by_hand.py wrote; the server has the model in its `start`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from PIL import Image
from trl.generation.vllm_client import VLLMClient
from trl.generation.vllm_generation import VLLMGeneration

from training.model import load_model
from training.rollouts import vllm_rollouts


def say(what: str) -> None:
    print(f"ok: {what}", flush=True)


def ask_server(out: Path, url: str) -> None:
    """A running server counts the same image tokens, generates from them, and forgets images when told."""
    client = VLLMClient(base_url=url, connection_timeout=120)
    loaded = load_model(str(out / "start"))
    processor: Any = loaded.processor
    pad = loaded.model.config.image_token_id
    images = [[Image.open(path).convert("RGB")] for path in sorted((out / "data").glob("*.png"))[:3]]
    content = [{"type": "text", "text": "Where is the car?"}]
    chats = [[{"role": "user", "content": [{"type": "image", "image": shown[0]}, *content]}] for shown in images]
    ids = processor.apply_chat_template(chats, add_generation_prompt=True, tokenize=True, return_dict=True)["input_ids"]
    counts = [list(row).count(pad) for row in ids]
    opened = [[image.resize(loaded.frame.size(image.size)) for image in row] for row in images]
    told = vllm_rollouts.server_image_tokens(client, opened)
    assert told == counts and len(set(counts)) == 3, (told, counts)
    say(f"image tokens of the server: {told}")
    larger = [[image.resize((320, 160))] for (image,) in images]
    assert vllm_rollouts.server_image_tokens(client, larger) != counts
    place = SimpleNamespace(processing_class=SimpleNamespace(image_token_id=pad))
    features = [
        VLLMGeneration._place_features(place, row, list(row_ids))
        for row, row_ids in zip(client.image_features(opened), ids, strict=True)
    ]
    bias = {"logit_bias": {pad: -100.0}}
    answers = client.generate([list(row) for row in ids], features, n=2, max_tokens=12, generation_kwargs=bias)
    assert len(answers["completion_ids"]) == 6 and not any(pad in row for row in answers["completion_ids"])
    say("the server generates from prompts of the update, image tokens suppressed")
    engine = SimpleNamespace(vllm_client=client)
    main = SimpleNamespace(is_main_process=True)
    trainer = SimpleNamespace(vllm_generation=engine, vllm_mode="server", accelerator=main)
    vllm_rollouts.VllmRollouts._forget_images(trainer)
    say("the server forgets images when told")


if __name__ == "__main__":
    ask_server(Path(sys.argv[1]), sys.argv[2])

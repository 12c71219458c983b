"""Texts about pictures as tokens, in the words of the chat template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from data_gen.pretraining.texts import Said
from training.mini_stages.forward import IMAGE_TOKENS, Conversation, SharedRows, shared_rows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True)
class Speech:
    """The tokenizer, and what it makes of texts about pictures."""

    tokenizer: PreTrainedTokenizerFast

    @cached_property
    def head(self) -> list[int]:
        """What every prompt begins with, the picture's tokens included."""
        return self._ids(f"<|im_start|>user\n<|vision_start|>{'<|image_pad|>' * IMAGE_TOKENS}<|vision_end|>")

    def conversation(self, said: Said) -> Conversation:
        """Prompt and reply after the head, or alone."""
        begun = "<|im_start|>user\n" if said.alone else ""
        prompt = self._ids(f"{begun}{said.prompt}<|im_end|>\n<|im_start|>assistant\n")
        return Conversation((*prompt, *self._ids(f"{said.reply}<|im_end|>")), len(prompt), said.alone)

    def rows(self, said_of_pictures: Sequence[Sequence[Said]]) -> SharedRows:
        """One row of conversations per picture."""
        conversations = [[self.conversation(said) for said in about] for about in said_of_pictures]
        return shared_rows(self.head, conversations, self.tokenizer.pad_token_id)

    def _ids(self, text: str) -> list[int]:
        return self.tokenizer(text)["input_ids"]

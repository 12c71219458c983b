"""Who infers the answer from a trace, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from data_gen.chat import ChatClient

MODES = ("forward", "generate")
# The other processes wait for this one's verdicts, by default half an hour.
SERVER_PATIENCE_S = 600.0


@dataclass(frozen=True)
class VerifierOptions:
    """Who is asked, and how.

    mode: `forward` or `generate`. model: `self`, `reference`, or the URLs of a server, separated by commas, which
    knows `endpoint_model` and can only be asked to generate. compare_steps: generation batches between two counts of
    the meters that cost extra passes; 0: none.
    Raises ValueError for what does not go together.
    """

    mode: str = "forward"
    model: str = "self"
    endpoint_model: str | None = None
    compare_steps: int = 0

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"unknown --logic-mode {self.mode!r}; known: {', '.join(MODES)}")
        if self.served and not all(url.startswith(("http://", "https://")) for url in self.urls):
            raise ValueError(f"--logic-model is self, reference or http://HOST:PORT/v1, got {self.model!r}")
        if self.served != bool(self.endpoint_model):
            raise ValueError(
                "--logic-model http://HOST:PORT/v1 and --logic-endpoint-model NAME, a model that is served there, go "
                f"together; got {self.model!r} and {self.endpoint_model!r}"
            )
        if self.compare_steps < 0:
            raise ValueError(f"--logic-compare-steps must be at least 0, got {self.compare_steps}")

    @property
    def served(self) -> bool:
        """Whether a server is asked."""
        return self.model not in ("self", "reference")

    @property
    def urls(self) -> list[str]:
        """Of the server's copies, which are used in turn."""
        return self.model.split(",")

    @property
    def other_mode(self) -> str:
        """The mode that verdicts are compared with."""
        return MODES[1 - MODES.index(self.mode)]

    def client(self) -> ChatClient | None:
        """The client of the server, if one is asked."""
        from data_gen.chat import ChatClient, Patience

        patience = Patience(give_up_after_s=SERVER_PATIENCE_S)
        return ChatClient(self.urls, self.endpoint_model or "", patience=patience) if self.served else None

    def check_reference(self, has_reference: bool) -> None:
        """Raises ValueError when the reference is asked and there is none."""
        if self.model == "reference" and not has_reference:
            raise ValueError(
                "--logic-model reference: a frozen model is only there with a KL term (--beta above 0) or an adapter "
                "(--use_peft); give one of them, or --logic-model self"
            )

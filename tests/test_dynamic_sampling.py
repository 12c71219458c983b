"""Groups without spread are replaced by groups of other prompts, whole, and everything that belongs to them moves."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from test_training import GRPO, fails, grpo_trainer

from training import grpo
from training.schedule.batches import merge_groups
from training.schedule.dynamic_sampling import fill_places, groups_with_spread, other_prompts

NAN = torch.nan


@pytest.mark.parametrize(
    ("rewards", "spread"),
    [
        ([[1, 0], [1, 0]], False),
        ([[1, 0], [0, 0]], True),
        ([[1, 0], [0, 2]], False),  # the weighted sums are equal: 1 + 0 and 0 + 0.5 * 2
        ([[1, 0], [0, 1]], True),
        ([[1, NAN], [1, NAN]], False),
        ([[NAN, NAN], [1, 0]], False),  # a completion without any reward does not count
        ([[NAN, NAN], [NAN, NAN]], False),
    ],
)
def test_spread_is_that_of_the_weighted_sums(rewards: list[list[float]], spread: bool) -> None:
    weights = torch.tensor([1.0, 0.5])
    assert groups_with_spread(torch.tensor(rewards, dtype=torch.float32), weights, 2).tolist() == [spread]


def test_a_meter_gives_no_spread() -> None:
    rewards = torch.tensor([[1.0, 5.0], [1.0, 7.0], [0.0, 5.0], [1.0, 5.0]])
    assert groups_with_spread(rewards, torch.tensor([1.0, 0.0]), 2).tolist() == [False, True]


def test_prompts_not_seen_come_first_and_pairs_together() -> None:
    units = [(0, 1), (2, 3), (4, 5)]
    drawn = list(islice(other_prompts(units, {2}, "1 0 0"), 12))
    assert set(drawn[:4]) == {0, 1, 4, 5} and drawn[4:6] == [2, 3] and drawn[6:] == drawn[:6]
    assert all(b == a + 1 for a, b in zip(drawn[::2], drawn[1::2], strict=True))
    many = [(place,) for place in range(50)]
    seeds = [list(islice(other_prompts(many, set(), seed), 50)) for seed in ("1 0 0", "1 0 0", "1 0 1")]
    assert seeds[0] == seeds[1] != seeds[2]


def test_places_are_filled_as_far_as_there_are_groups() -> None:
    assert fill_places([True, False, False], [False, True, True]) == [(1, 1), (2, 2)]
    assert fill_places([False, False, True], [False, True, False]) == [(0, 1)]
    assert fill_places([True, True], [True, True]) == []


def batch_of(lengths: tuple[int, int], first: int, patches: list[int]) -> dict[str, Any]:
    """Two groups of one; `lengths` of prompt and completion; every value says whose it is."""
    prompt, completion = lengths
    ids = torch.tensor([[first], [first + 1]])
    return {
        "prompt_ids": ids.expand(2, prompt),
        "prompt_mask": torch.ones(2, prompt, dtype=torch.long),
        "completion_ids": ids.expand(2, completion),
        "completion_mask": torch.ones(2, completion, dtype=torch.long),
        "mm_token_type_ids": torch.cat([torch.ones(2, prompt), torch.full((2, completion), 2.0)], dim=1),
        "old_per_token_logps": -ids.expand(2, completion).float(),
        "importance_sampling_ratio": ids.float(),
        "advantages": ids[:, 0].float(),
        "num_items_in_batch": torch.tensor(2 * completion),
        "pixel_values": torch.cat([torch.full((count, 3), first + row) for row, count in enumerate(patches)]),
        "image_grid_thw": torch.tensor([[1, 1, count] for count in patches]),
        "num_images": [1, 1],
    }


def test_a_merged_batch_pads_prompts_left_and_completions_right_and_moves_images() -> None:
    batch = merge_groups(batch_of((2, 3), 10, [4, 2]), batch_of((3, 1), 20, [5, 1]), [(0, 1)], 1, pad_token_id=99)
    assert batch["prompt_ids"].tolist() == [[21, 21, 21], [99, 11, 11]]
    assert batch["prompt_mask"].tolist() == [[1, 1, 1], [0, 1, 1]]
    assert batch["completion_ids"].tolist() == [[21, 99, 99], [11, 11, 11]]
    assert batch["completion_mask"].tolist() == [[1, 0, 0], [1, 1, 1]]
    assert batch["mm_token_type_ids"].tolist() == [[1, 1, 1, 2, 0, 0], [0, 1, 1, 2, 2, 2]]
    assert batch["old_per_token_logps"].tolist() == [[-21, 0, 0], [-11, -11, -11]]
    assert batch["importance_sampling_ratio"].tolist() == [[21], [11]]  # one per sequence, as in some modes
    assert batch["advantages"].tolist() == [21, 11]
    assert batch["image_grid_thw"].tolist() == [[1, 1, 1], [1, 1, 2]]
    assert batch["pixel_values"][:, 0].tolist() == [21, 11, 11]
    with pytest.raises(ValueError, match="advantages"):
        merge_groups({"advantages": torch.ones(1)}, {}, [], 1, 0)


def sometimes(completions: list[Any], question_id: list[str], **_: Any) -> list[float]:
    """Spread for the questions of a third of all images, whatever the model writes; 1 everywhere else."""
    return [
        float(place % 2) if name.split("-")[1] in ("0", "3", "6", "9") else 1.0
        for place, name in enumerate(question_id)
    ]


def nothing(completions: list[Any], **_: Any) -> list[float]:
    return [0.0] * len(completions)


def watched(questions: Path, out: Path, *options: str, reward: Any = sometimes) -> tuple[Any, list[dict[str, Any]]]:
    """A trainer that is paid by one reward, and the generation batches that reach its update."""
    trainer = grpo_trainer(questions, out, "--rewards", "format", *options, reward=reward)
    batches: list[dict[str, Any]] = []
    generate = trainer._generate_and_score_completions

    def noted(inputs: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = generate(inputs)
        batches.append(dict(batch))
        return batch

    trainer._generate_and_score_completions = noted
    return trainer, batches


def spread_of(batch: dict[str, Any], group: int = 4) -> list[float]:
    advantages = batch["advantages"].view(-1, group)
    return (advantages.amax(dim=1) - advantages.amin(dim=1)).tolist()


def logged(trainer: Any) -> list[dict[str, Any]]:
    return [entry for entry in trainer.state.log_history if "loss" in entry]


WIDE = [
    "--per_device_train_batch_size",
    "16",
    "--max_steps",
    "3",
    "--max_completion_length",
    "5",
    "--save_strategy",
    "no",
]


@pytest.mark.parametrize("path", ["--shared_prefix", "--no_shared_prefix"])
def test_only_groups_with_spread_reach_the_update_with_all_that_is_theirs(
    traces: Path, tmp_path: Path, path: str
) -> None:
    questions = traces.with_name("questions.jsonl")
    options = [*WIDE, path, "--num_iterations", "2", "--beta", "0.1"]
    trainer, batches = watched(questions, tmp_path / "with", *options, "--dynamic_sampling", "6")
    first: dict[str, torch.Tensor] = {}
    split = trainer._prepare_inputs

    def compared(inputs: Any) -> Any:
        batch = split(inputs)
        if not first:  # before any step: the log-probabilities of the merged batch are those of the draws
            first.update(log_probs_again(trainer, batch), **{name: batch[name] for name in KNOWN})
        return batch

    trainer._prepare_inputs = compared
    trainer.train()
    assert all(spread > 0 for batch in batches for spread in spread_of(batch))
    for name in KNOWN:
        torch.testing.assert_close(first["again"], first[name], rtol=1e-5, atol=1e-5)
    assert (first["again"] - first["other images"]).abs().max() > 1e-3  # control
    figures = [entry for entry in logged(trainer) if "dynamic/rounds" in entry]  # others reuse a generation batch
    assert len(figures) == len(batches) and sum(entry["dynamic/replaced"] for entry in figures) > 0
    assert all(entry["dynamic/left"] == 0 for entry in figures)
    assert batches[0]["num_items_in_batch"] == batches[0]["completion_mask"].sum()
    # Control: without dynamic sampling the same run has groups without spread, and logs the same first rewards.
    plain, before = watched(questions, tmp_path / "without", *options)
    plain.train()
    assert any(spread == 0 for batch in before for spread in spread_of(batch))
    assert not any(name.startswith("dynamic/") for name in logged(plain)[0])
    assert logged(plain)[0]["reward"] == figures[0]["reward"]
    assert logged(plain)[0]["completions/mean_length"] == figures[0]["completions/mean_length"]
    assert logged(plain)[0]["num_tokens"] < figures[0]["num_tokens"]


KNOWN = ("old_per_token_logps", "ref_per_token_logps")


def log_probs_again(trainer: Any, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Log-probabilities of a batch's completions computed anew, as they are and with the images in another order."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    width = batch["completion_ids"].shape[1]
    names = ("image_grid_thw", "num_images", "mm_token_type_ids")
    inputs = {name: batch[name] for name in names if name in batch}
    found = {}
    for name, pixels in (("again", batch["pixel_values"]), ("other images", batch["pixel_values"].flip(0))):
        with torch.no_grad():
            values, *_ = trainer._get_per_token_logps_and_entropies(
                trainer.model, ids, mask, width, pixel_values=pixels, **inputs
            )
        found[name] = values * batch["completion_mask"]
    return found


def test_evaluation_draws_nothing(traces: Path, tmp_path: Path) -> None:
    trainer, batches = watched(
        traces.with_name("questions.jsonl"), tmp_path, *WIDE, "--dynamic_sampling", "2", reward=nothing
    )
    trainer.model.eval()
    trainer._generate_and_score_completions([trainer.train_dataset[0]] * 4)
    assert spread_of(batches[0]) == [0.0] and not any("dynamic" in name for name in trainer._metrics["eval"])


def test_what_is_still_without_spread_stays_and_is_counted(traces: Path, tmp_path: Path) -> None:
    trainer, batches = watched(traces.with_name("questions.jsonl"), tmp_path, *WIDE, "--dynamic_sampling", "1")
    trainer.train()
    figures = logged(trainer)
    left = [sum(spread == 0 for spread in spread_of(batch)) for batch in batches]
    assert [entry["dynamic/left"] for entry in figures] == left and sum(left) > 0
    assert all(entry["dynamic/rounds"] <= 1 for entry in figures)


def test_a_stage_draws_from_all_of_its_questions_and_no_others(traces: Path, tmp_path: Path) -> None:
    stages = tmp_path / "stages.yaml"
    stages.write_text("- {name: few, rewards: [format], steps: 1, tasks: [pixel, depth]}")
    options = [*WIDE[:2], *WIDE[4:], "--stages", str(stages), "--dynamic_sampling", "3"]
    asked: list[str] = []

    def noted(completions: list[Any], question_id: list[str], **columns: Any) -> list[float]:
        asked.extend(question_id[::4])
        return sometimes(completions, question_id, **columns)

    trainer, _ = watched(traces.with_name("questions.jsonl"), tmp_path / "run", *options, reward=noted)
    trainer.train()
    assert len(set(trainer.order)) == 4 < len(set(asked)) <= 12  # six images have pixel and depth questions
    assert {name.split("-")[0] for name in asked} == {"pixel", "depth"}
    assert len(set(asked[:8])) == 8  # the first further draw is of questions not seen yet


def test_a_run_without_any_spread_stops_and_says_what_was_earned(traces: Path, tmp_path: Path) -> None:
    trainer, batches = watched(
        traces.with_name("questions.jsonl"), tmp_path, *WIDE, "--dynamic_sampling", "2", reward=nothing
    )
    with pytest.raises(ValueError, match=r"after 2 further draws: 48 completions earned format always 0 \(weight 1\)"):
        trainer.train()
    assert batches == []


def test_a_resumed_run_draws_what_the_whole_one_drew(traces: Path, tmp_path: Path) -> None:
    questions = traces.with_name("questions.jsonl")
    options = [*WIDE[:6], "--save_steps", "2", "--save_total_limit", "9", "--dynamic_sampling", "6"]
    whole, batches = watched(questions, tmp_path, *options)
    whole.train()
    resumed, again = watched(questions, tmp_path, *options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert torch.equal(again[-1]["prompt_ids"], batches[-1]["prompt_ids"])
    assert torch.equal(again[-1]["completion_ids"], batches[-1]["completion_ids"])
    assert logged(resumed)[-1]["dynamic/replaced"] == logged(whole)[-1]["dynamic/replaced"] > 0


def test_settings_under_which_groups_cannot_be_exchanged_are_refused(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", str(traces.with_name("questions.jsonl")), "--out", str(tmp_path / "out"), *GRPO]
    for options, reason in (
        (["--dynamic_sampling", "-1"], "0 or more"),
        (["--dynamic_sampling", "1", "--scale_rewards", "batch"], "must not depend on other groups"),
        (["--dynamic_sampling", "1", "--multi_objective_aggregation", "normalize_then_sum"], "must not depend"),
    ):
        assert reason in fails(capsys, grpo.main, [*words, *options])

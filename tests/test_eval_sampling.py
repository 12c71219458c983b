"""Sampled answers: what is drawn, that nothing but the seed matters, and what is made of several answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from eval_runs import check_resumed_after_a_cut, rows_of, summary_of
from sharp_model import questions_about, sharp_tiny, write_noise
from small_questions import make_questions, perfect_output, write_small_set

from data_gen.floors import units_of
from data_gen.records import Question, read_questions
from eval.cyclingvqa import main as cyclingvqa
from eval.decoding import draw_seed, sampled
from eval.drivemllm import main as drivemllm
from eval.engines import Request
from eval.finished_run import asked_questions, read_run
from eval.hf_engine import HfEngine
from eval.metrics import Figures, assess, floors_of, summarise
from eval.report import main as report
from eval.sampling import DrawTokens
from eval.surds import main
from rewards.boxes import CoordinateFrame
from training.model import LoadedModel

SIZES = [(160, 96), (96, 160)]
NEW_TOKENS = 10
HOT = 8.0  # the sharp model is sure of itself
LOGITS = [2.0, 1.0, 0.0, -torch.inf, 1.0]
DRAWS = 20_000


# --- one token


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_drawn_as_often_as_they_are_likely(temperature: float) -> None:
    draw = DrawTokens(range(DRAWS), 1, temperature)
    scores = draw(torch.zeros(DRAWS, 1), torch.tensor([LOGITS]).expand(DRAWS, -1))
    assert (scores == 0).sum(dim=1).eq(1).all() and scores.isinf().sum() == DRAWS * 4
    found = torch.bincount(scores.argmax(dim=1), minlength=5) / DRAWS
    expected = (torch.tensor(LOGITS) / temperature).softmax(0)
    assert found[3] == 0
    assert torch.allclose(found, expected, atol=4 * 0.5 / DRAWS**0.5)
    assert not torch.allclose(found, (torch.tensor(LOGITS) / (1.3 * temperature)).softmax(0), atol=4 * 0.5 / DRAWS**0.5)


def test_a_rows_draws_follow_from_its_seed_and_not_from_its_neighbours() -> None:
    scores = torch.randn(4, 50, generator=torch.Generator().manual_seed(0)).repeat(1, 1)

    def tokens(seeds: list[int], rows: list[int]) -> list[list[int]]:
        draw = DrawTokens(seeds, 9, 1.0)
        return torch.stack([draw(scores, scores[rows]).argmax(1) for _ in range(9)], dim=1).tolist()

    together = tokens([5, 6, 7, 8], [0, 1, 2, 3])
    assert tokens([7], [2]) == [together[2]] and tokens([8, 5], [3, 0]) == [together[3], together[0]]
    assert tokens([9], [2]) != [together[2]]
    assert len(set(together[0])) > 2, "steps have draws of their own"


def test_seeds_tell_requests_and_runs_apart() -> None:
    names = [request.id for request in sampled([Request(str(n), "", (), ()) for n in range(50)], 4)]
    assert len(set(names)) == 200 and names[:2] == ["0", "0 #1"]
    assert len({draw_seed(seed, name) for seed in (0, 1) for name in names}) == 400


# --- the engine


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return sharp_tiny()


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> list[Request]:
    """Two pictures with four and two questions, one of them asked twice; three samples each."""
    paths = write_noise(tmp_path_factory.mktemp("noise"), SIZES)
    groups = [questions_about([path], [size], path.stem, n) for path, size, n in zip(paths, SIZES, (4, 2), strict=True)]
    first = groups[0][1]
    twin = Request("twin", first.prompt, first.images, first.sizes)
    return sampled([*groups[0], twin, *groups[1]], 3)


@pytest.fixture(scope="module")
def expected(loaded: LoadedModel, requests: list[Request]) -> dict[str, str]:
    """One plain `generate` call per request."""
    return answers(loaded, requests, batch_size=1, share_images=False)


def answers(
    loaded: LoadedModel, requests: list[Request], temperature: float = HOT, seed: int = 3, **settings: Any
) -> dict[str, str]:
    engine = HfEngine(loaded, NEW_TOKENS, temperature=temperature, seed=seed, **settings)
    return {reply.id: reply.output for reply in engine.replies(requests)}


@pytest.mark.parametrize(("batch_size", "share_images"), [(2, True), (7, True), (32, True), (7, False)])
def test_batches_and_shared_prompts_give_the_draws_of_one_call_per_request(
    loaded: LoadedModel, requests: list[Request], expected: dict[str, str], batch_size: int, share_images: bool
) -> None:
    assert answers(loaded, requests, batch_size=batch_size, share_images=share_images) == expected
    assert len(set(expected.values())) == len(requests), "every sample is a draw of its own"


def test_another_seed_draws_others_and_little_heat_draws_what_greedy_decoding_takes(
    loaded: LoadedModel, requests: list[Request], expected: dict[str, str]
) -> None:
    other = answers(loaded, requests, seed=4, batch_size=32)
    assert not any(other[name] == output for name, output in expected.items())
    greedy = answers(loaded, requests, temperature=0.0, batch_size=32)
    assert answers(loaded, requests, temperature=1e-6, batch_size=32) == greedy
    assert len(set(greedy.values())) <= len(requests) // 3


def test_sampling_settings_of_the_checkpoint_do_not_count(
    loaded: LoadedModel, requests: list[Request], expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"do_sample": True, "top_k": 1, "top_p": 0.01, "temperature": 1e-6}.items():
        monkeypatch.setattr(loaded.model.generation_config, name, value)
    assert answers(loaded, requests, batch_size=32) == expected


def test_a_prompt_is_computed_once_for_all_of_its_samples(loaded: LoadedModel, requests: list[Request]) -> None:
    computed: list[int] = []
    layer = loaded.model.model.language_model.layers[0]
    hook = layer.register_forward_pre_hook(lambda _, args: computed.append(args[0].shape[:2].numel()))

    def cost(asked: list[Request]) -> int:
        computed.clear()
        list(HfEngine(loaded, 1, 32, temperature=HOT).replies(asked))
        return sum(computed)

    try:
        group = [request for request in requests if request.images == requests[0].images and "twin" not in request.id]
        once = [request for request in group if "#" not in request.id]
        assert cost(group) <= cost(once) + len(group), "but for the last token, from which each sample goes on"
    finally:
        hook.remove()


# --- figures


def figures(answered: dict[tuple[str, int], str], questions: list[Question], samples: int) -> Figures:
    """answered: (question id, sample) -> output."""
    frame = CoordinateFrame()
    outcomes = [
        assess(question, answered.get((question.id, sample), "?"), 4 + 2 * sample, frame, "located", sample)
        for question in questions
        for sample in range(samples)
    ]
    return summarise(outcomes, "strict", floors_of(questions))


def test_figures_are_means_over_samples_and_pairs_are_right_within_a_sample() -> None:
    questions = [question for question in make_questions(8) if question.task in ("distance", "depth")]
    right = {question.id: perfect_output(question) for question in questions}
    pairs = [q for q in questions if q.task == "distance"]
    # The first question of every pair is right in samples 0 and 1, the second in samples 1 and 2.
    answered = {(q.id, sample): right[q.id] for q in pairs for sample in (q.variant, q.variant + 1)}
    depth = next(q for q in questions if q.task == "depth")
    answered[depth.id, 3] = right[depth.id]
    found = figures(answered, questions, 4)
    distance, depths = found.tasks["distance"], found.tasks["depth"]
    assert (distance.score, distance.single_question, distance.valid_rate, distance.loc) == (0.25, 0.5, 0.5, 0.5)
    assert distance.units == len(pairs) / 2 and distance.reasons["no_answer"] == len(pairs) / 2
    assert (depths.score, depths.single_question) == (1 / 4 / depths.units, 1 / 4 / depths.units)
    assert depths.reasons["no_answer"] == depths.units - 1 / 4
    assert (found.questions, found.mean_tokens, found.score) == (
        len(questions), 7, (distance.score + depths.score) / 2
    )  # fmt: skip
    assert distance.ci95 is not None and distance.ci95[0] <= 0.25 <= distance.ci95[1]
    crossed = {(q.id, 2 * q.variant): right[q.id] for q in pairs}  # right, but never in the same sample
    assert figures(crossed, questions, 4).tasks["distance"].score == 0
    assert figures(crossed, questions, 4).tasks["distance"].single_question == 0.25


# --- the command


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_set(tmp_path_factory.mktemp("set") / "data", images=4)


def options(data: Path, *more: object) -> list[str]:
    common = ("--data", data, "--ckpt", "tiny", "--limit", 1, "--max-new-tokens", 6, "--batch-size", 5)
    return [str(word) for word in (*common, *more)]


SAMPLED = ("--temperature", 1.0, "--samples", 3, "--seed", 7)


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "sampled"
    assert main(options(data, *SAMPLED, "--out", out)) == 0
    return out


@pytest.mark.parametrize("cut", [1, 900, 3000])
def test_a_sampled_run_that_was_cut_goes_on_to_the_same_draws(
    cut: int, data: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_resumed_after_a_cut(main, options(data, *SAMPLED), tmp_path / "run", HfEngine, cut, monkeypatch)
    assert (tmp_path / "run" / "predictions.jsonl").read_bytes() == (run / "predictions.jsonl").read_bytes()


def test_a_sampled_run_is_told_from_others_and_holds_a_line_a_sample(
    data: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, asked = rows_of(run), read_questions(data)
    assert summary_of(run)["decoding"] == {"temperature": 1.0, "samples": 3}
    assert [row["sample"] for row in rows] == [0, 1, 2] * (len(rows) // 3)
    assert len({row["output"] for row in rows}) > len(rows) // 2
    assert {row["id"] for row in rows} <= {question.id for question in asked}
    for change in (("--temperature", 0.5), ("--samples", 2), ("--seed", 8)):
        assert main(options(data, *SAMPLED, *change, "--out", run, "--resume")) == 2
        assert "decoding: 3 samples at temperature 1, seed 7, at most 6 tokens there" in capsys.readouterr().err
    assert main(options(data, "--temperature", 1.0, "--seed", 7, "--out", tmp_path / "one")) == 0
    assert [row["output"] for row in rows_of(tmp_path / "one")] == [row["output"] for row in rows[::3]]


def test_greedy_runs_say_so_and_are_identified_as_ever(data: Path, tmp_path: Path) -> None:
    assert main(options(data, "--out", tmp_path / "run")) == 0
    assert summary_of(tmp_path / "run")["decoding"] == {"temperature": 0.0, "samples": 1}
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["identity"]["decoding"] == "greedy, at most 6 tokens"
    assert not any("sample" in row for row in rows_of(tmp_path / "run"))


def test_unit_scores_of_a_finished_run_are_those_of_its_summary(data: Path, run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "taught"
    folder.mkdir()
    for name in ("run.json", "summary.json"):
        (folder / name).write_bytes((run / name).read_bytes())
    rows = rows_of(run)
    for row in rows:  # right in the last two of three samples, second questions of pairs in the first two
        row["score"]["strict"] = float(row["sample"] in ((0, 1) if row["id"].endswith("-1") else (1, 2)))
    (folder / "predictions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in reversed(rows)))
    finished = read_run(folder)
    questions = asked_questions(finished)
    scores = finished.unit_scores(questions)
    sizes = {name: len(unit) for name, unit in units_of(questions).items()}
    assert scores == {name: pytest.approx(1 / 3 if size == 2 else 2 / 3) for name, size in sizes.items()}
    assert set(sizes.values()) == {1, 2}
    with pytest.raises(KeyError):
        finished.unit_scores(read_questions(data))
    told, summary = read_run(run), summary_of(run)
    for task, item in summary["tasks"].items():
        (score,) = (told.unit_scores(unit)[name] for name, unit in units_of(questions).items() if unit[0].task == task)
        assert score == item["score"]


def test_sampled_runs_are_reported_beside_others_and_not_replayed(
    data: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    greedy = tmp_path / "greedy"
    assert main(options(data, "--out", greedy, "--label", "greedy")) == 0
    assert report([str(greedy), str(run), "--out", str(tmp_path / "report.html")]) == 0
    printed = capsys.readouterr().out
    assert "tiny: 3 samples at temperature 1; scores and rates are means over all answers" in printed
    assert "tiny: confusions and full outputs are those of the first sample alone" in printed
    assert "tiny minus greedy:" in printed
    for replayed in (run, run / "predictions.jsonl"):
        assert main(["--data", str(data), "--replay", str(replayed), "--out", str(tmp_path / "again")]) == 2
        assert "has 3 samples of every question, and a replay takes one of each" in capsys.readouterr().err


@pytest.mark.parametrize(("command", "name"), [(drivemllm, "DriveMLLM"), (cyclingvqa, "CyclingVQA")])
def test_other_benchmarks_refuse_to_sample(command: Any, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["--ckpt", "tiny", "--data", "x", "--temperature", "1", "--samples", "2"]) == 2
    assert f"are for eval/surds.py: {name} is scored on greedy answers" in capsys.readouterr().err

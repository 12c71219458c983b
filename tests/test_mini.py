"""The mini model that ships with the repository, and the parts of its pretraining."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from data_gen.build_surds import main as build_surds
from data_gen.pretraining.pictures import SHOWN_PX, Pictures, Seen, nameable, render_scenes
from data_gen.pretraining.texts import TAGGED_SHARE, Said, caption, grounding, measured, place, tagged
from data_gen.synthetic import WorldSpec, write_world
from eval.surds import main as surds
from rewards.response import parse
from training import mini_pretrain
from training.mini_stages import loop
from training.mini_stages.architecture import new_mini
from training.mini_stages.dense import PARTS, cell_truth, dense_losses
from training.mini_stages.forward import (
    IGNORED,
    IMAGE_TOKENS,
    Conversation,
    SharedRows,
    image_tokens,
    patches_of,
    shared_rows,
    text_loss,
)
from training.mini_stages.score import seeing_scores
from training.mini_stages.speech import Speech
from training.mini_stages.stages import STAGES
from training.model import MINI, load_model
from training.processor import Qwen2VLImageProcessorPil
from training.tiny import train_tokenizer

TEST_SEED = 500  # of pictures on which nothing was trained


@pytest.fixture(scope="module")
def pictures() -> Pictures:
    return render_scenes(TEST_SEED, range(4))


@pytest.fixture(scope="module")
def speech() -> Speech:
    return Speech(train_tokenizer())


def test_it_is_small_and_loads_in_stock_classes_and_saves_again(tmp_path: Path) -> None:
    from transformers import Qwen2_5_VLForConditionalGeneration

    assert sum(path.stat().st_size for path in MINI.iterdir()) < 10_000_000
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(MINI)
    assert model.config.text_config.hidden_size // model.config.text_config.num_attention_heads == 32
    loaded = load_model("mini")
    assert (loaded.frame.kind, loaded.frame.size((224, 126))) == ("resized", (224, 112))
    loaded.model.save_pretrained(tmp_path)
    loaded.processor.save_pretrained(tmp_path)
    again = load_model(str(tmp_path)).model.state_dict()
    assert all(torch.equal(value, again[name]) for name, value in loaded.model.state_dict().items())


def test_it_names_and_places_objects_it_has_not_seen(pictures: Pictures) -> None:
    loaded = load_model("mini")
    scores = seeing_scores(loaded.model, loaded.processor, pictures, 48)
    card = json.loads((MINI / "scores.json").read_text())
    for name in ("placed", "named", "colour_named", "kind_named"):
        spread = 3 * (card[name] * (1 - card[name]) / scores.questions) ** 0.5
        assert getattr(scores, name) == pytest.approx(card[name], abs=spread + 0.03), name
    # Chance: one of 8 colours, one of 5 kinds; a box of another picture overlaps by a half in some percent.
    assert min(scores.colour_named, scores.kind_named) > 0.4 and scores.placed > 0.2

    blind = Pictures(np.zeros_like(pictures.pixels), pictures.objects)
    unseen = seeing_scores(loaded.model, loaded.processor, blind, 48)
    assert unseen.placed < scores.placed / 2 and unseen.colour_named < scores.colour_named / 2


def test_patches_and_tower_are_those_of_the_stock_classes(pictures: Pictures, speech: Speech) -> None:
    images = Qwen2VLImageProcessorPil(size={"shortest_edge": 28 * 28, "longest_edge": SHOWN_PX[0] * SHOWN_PX[1]})(
        [Image.fromarray(pixels) for pixels in pictures.pixels[:2]], return_tensors="pt"
    )
    patches_NPC = patches_of(pictures.pixels[:2])
    torch.testing.assert_close(patches_NPC.flatten(0, 1), images["pixel_values"])
    visual = new_mini(speech.tokenizer, 0).model.visual
    with torch.no_grad():
        stock = visual(images["pixel_values"], grid_thw=images["image_grid_thw"]).pooler_output
        torch.testing.assert_close(image_tokens(visual, patches_NPC).flatten(0, 1), stock, rtol=1e-4, atol=1e-5)


def test_conversations_in_one_row_are_learnt_as_each_alone(pictures: Pictures, speech: Speech) -> None:
    model, rng = new_mini(speech.tokenizer, 0), np.random.default_rng(0)
    for layer in model.model.language_model.layers:  # flat attention of first weights would forgive a wrong mask
        layer.self_attn.q_proj.weight.data.mul_(8.0)
    seen = next(objects for objects in pictures.objects if len(nameable(objects)) > 1)
    question = grounding(seen, rng)
    assert question is not None
    said = [caption(seen), place(nameable(seen)[0]), tagged(question, rng)]
    patches_NPC = patches_of(pictures.pixels[pictures.objects.index(seen)][None])
    rows = speech.rows([said])
    with torch.no_grad():
        tokens_NTC = image_tokens(model.model.visual, patches_NPC)
        together = text_loss(model, tokens_NTC, rows)
        stock = _loss_of_each(model, speech, [speech.conversation(item) for item in said], patches_NPC[0])
        everything = torch.ones_like(rows.may_attend).tril()
        mixed = text_loss(model, tokens_NTC, SharedRows(rows.ids, rows.labels, rows.positions, everything))
    assert together.item() == pytest.approx(stock, abs=1e-4)
    assert abs(mixed.item() - stock) > 1e-3  # what the mask is for


def _loss_of_each(model: nn.Module, speech: Speech, items: list[Conversation], patches: torch.Tensor) -> float:
    """The stock forward's mean loss over what is learnt in conversations, one at a time."""
    total, count = 0.0, 0
    for item in items:
        ids = torch.tensor([[*speech.head, *item.ids]])
        labels = ids.clone()
        labels[:, : len(speech.head) + item.prompt_length] = IGNORED
        is_image = (ids == model.config.image_token_id).int()
        grid = torch.tensor([[1, SHOWN_PX[1] // 14, SHOWN_PX[0] // 14]])
        output = model(
            input_ids=ids, pixel_values=patches, image_grid_thw=grid, mm_token_type_ids=is_image, labels=labels
        )
        learnt = int((labels != IGNORED).sum())
        total, count = total + float(output.loss) * learnt, count + learnt
    return total / count


def test_prompts_are_those_of_the_chat_template(speech: Speech) -> None:
    loaded = load_model("mini")
    for said in (Said("Where is the red car?", "There"), Said("Read: a b", "a b", alone=True)):
        content = [*([] if said.alone else [{"type": "image"}]), {"type": "text", "text": said.prompt}]
        whole = loaded.processor.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
        )
        expanded = whole.replace("<|image_pad|>", "<|image_pad|>" * IMAGE_TOKENS)
        spoken = speech.conversation(said)
        head = () if said.alone else tuple(speech.head)
        assert (*head, *spoken.ids[: spoken.prompt_length]) == tuple(loaded.processor.tokenizer(expanded)["input_ids"])


def test_rows_of_different_lengths_are_padded(speech: Speech) -> None:
    short, long = Conversation((7, 8), 1), Conversation((7, 8, 9, 10), 2)
    rows = shared_rows(speech.head, [[short], [long, short]], pad_id=0)
    head = len(speech.head)
    assert rows.ids[0, head:].tolist() == [7, 8, 0, 0, 0, 0]
    assert rows.labels[1, head:].tolist() == [IGNORED, IGNORED, 9, 10, IGNORED, 8]
    after = int(rows.positions[:, 1, :head].max()) + 1
    assert (rows.positions[:, 1, head:] - after).tolist() == [[0, 1, 2, 3, 0, 1]] * 3


def test_a_mirrored_object_is_where_the_mirror_shows_it() -> None:
    car = Seen(0, 1, heading=1, box_xyxy_px=(10, 20, 60, 50), depth_m=9)
    assert car.mirrored() == Seen(0, 1, heading=7, box_xyxy_px=(164, 20, 214, 50), depth_m=9)
    assert car.mirrored().mirrored() == car


def test_the_dense_loss_is_least_for_the_truth() -> None:
    truth = cell_truth([[Seen(2, 5, 3, (0, 0, 60, 30), 20.0)]])
    assert truth.classes[0, 0].tolist() == [5, 2, 3] and truth.classes[0, 5].tolist() == [IGNORED] * 3
    classes = truth.classes.clamp(min=0)
    shown = (truth.classes[..., :1] != IGNORED).float()
    width, cells = 8, torch.arange(32)
    parts = {
        **{name: 50 * nn.functional.one_hot(classes[..., index], PARTS[name]).float()
           for index, name in enumerate(("colour", "kind", "heading"))},
        "box": truth.values[..., :4], "depth": truth.values[..., 4:],
        "row": 50 * nn.functional.one_hot(cells // width, 4).float()[None],
        "column": 50 * nn.functional.one_hot(cells % width, 8).float()[None], "shown": 100 * shown - 50,
    }  # fmt: skip
    said = torch.cat([parts[name] for name in PARTS], dim=-1)
    assert max(loss.item() for loss in dense_losses(said, truth).values()) < 1e-6
    assert min(loss.item() for loss in dense_losses(said.flip(1), truth).values()) > 1e-3


def test_about_the_told_share_of_grounding_replies_keeps_the_format(pictures: Pictures) -> None:
    rng = np.random.default_rng(1)
    questions = [question for seen in pictures.objects * 20 if (question := grounding(seen, rng))]
    replies = [tagged(question, rng).reply for question in questions]
    share = sum(parse(reply).well_formed for reply in replies) / len(replies)
    assert len(replies) > 400 and share == pytest.approx(TAGGED_SHARE, abs=0.08)
    assert all(question.answer in question.options for question in questions if question.options)


def test_measures_are_those_of_the_named_objects() -> None:
    near, far = Seen(0, 1, 2, (0, 20, 56, 50), 9.4), Seen(1, 2, 3, (112, 20, 168, 50), 31.0)
    percent = {near.name: 12, far.name: 62}
    wanted = {"Read the meters": {near.name: 9, far.name: 31}, "Read the percent from the left": percent}
    asked = [measured([near, far], np.random.default_rng(seed)) for seed in range(20)]
    for said in asked:
        measure, names = said.prompt.split(": ")
        assert said.reply == ", ".join(f"{name} {wanted[measure][name]}" for name in names.split(", "))
    assert len({said.prompt for said in asked}) == 4


def test_boxes_names_and_sides_are_those_of_the_objects() -> None:
    car, bus = Seen(0, 1, 2, (0, 20, 56, 50), 9.4), Seen(1, 2, 3, (112, 20, 168, 50), 31.0)
    boxes = {car.name: "[0, 20, 56, 50]", bus.name: "[112, 20, 168, 50]"}
    in_box, sides = {box: name for name, box in boxes.items()}, {car.name: "On the left", bus.name: "In the middle"}
    seen = set()
    for seed in range(300):
        said = grounding([car, bus], np.random.default_rng(seed))
        start = " ".join(said.question.split()[:2])
        named = [name for name in boxes if f"the {name}" in said.question]
        boxed = [name for box, name in in_box.items() if box in said.question]
        if said.question.startswith("Which is the box of"):
            assert said.answer == boxes[named[0]]
        elif start == "On which":
            assert said.answer == sides[named[0]] in said.options and said.think.endswith(f"{said.answer.lower()}.")
        elif boxed and start == "Is the":
            assert said.answer == ("Yes" if boxed == named else "No")
        elif boxed:
            assert said.answer == f"The {boxed[0]}" in said.options and said.think.endswith(f"{boxed[0]}.")
        else:
            continue
        seen.add((start, said.answer in ("Yes", *boxes.values())))
    assert seen == {("Which is", True), ("Which is", False), ("Which of", False), ("Is the", True), ("Is the", False),
                    ("On which", False)}  # fmt: skip
    assert caption([bus, car]).reply.split("\n") == [
        f"{car.name}: [0, 20, 56, 50], 9 meters, points right",
        f"{bus.name}: [112, 20, 168, 50], 31 meters, points right and towards me",
    ]


def test_a_pair_is_compared_by_the_numbers_that_are_told() -> None:
    near, far = Seen(0, 1, 2, (0, 20, 56, 50), 9.4), Seen(1, 2, 3, (112, 20, 140, 50), 31.0)
    told = {
        "Meters away": {near.name: 9, far.name: 31},
        "Percent from the left": {near.name: 12, far.name: 56},
        "Width in percent": {near.name: 25, far.name: 12},
    }
    seen = set()
    for seed in range(200):
        question = grounding([near, far], np.random.default_rng(seed))
        heading, _, rest = question.think.partition(": ")
        if heading not in told:
            continue
        seen.add((heading, question.question.partition(" the ")[0]))
        numbers = [told[heading][item.name] for item in question.objects]
        pair = ", ".join(f"{item.name} {n} {item.name}" for item, n in zip(question.objects, numbers, strict=True))
        assert rest.startswith(f"{pair}.")
        if heading != "Width in percent":
            assert question.answer == f"{numbers[0]} and {numbers[1]}"
            continue
        chosen = far if "narrower" in question.question else near
        assert question.think.endswith(f"percent: {told[heading][chosen.name]} {chosen.name}.")
        first = question.objects[0] is chosen
        assert question.answer in (f"The {chosen.name}", "Yes" if first else "No")
    assert len(seen) == 5


def test_an_interrupted_stage_goes_on_as_if_it_had_not_been(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "SAVE_EVERY_S", 0.0)
    stage = loop.Stage("trial", 1, steps=6, examples_per_step=1, learning_rate=0.1)

    def run(checkpoint: Path, stop_at: int | None = None) -> tuple[int, list[float]]:
        """How many steps are trained, and the weight."""
        torch.manual_seed(0)
        line, calls = nn.Linear(3, 1), []

        def losses_of(rng: np.random.Generator) -> dict[str, torch.Tensor]:
            calls.append(1)
            if len(calls) == stop_at:
                raise KeyboardInterrupt
            return {"square": (line(torch.from_numpy(rng.random((4, 3)).astype(np.float32))) ** 2).mean()}

        loop.train(stage, [line], losses_of, checkpoint, seed=0)
        return len(calls), line.weight.flatten().tolist()

    steps, whole = run(tmp_path / "whole.pt")
    assert steps == 6
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut.pt", stop_at=4)
    assert run(tmp_path / "cut.pt") == (3, whole), "the steps that the interrupted one had not done"
    assert run(tmp_path / "cut.pt") == (0, whole), "finished: nothing more is trained"


def test_the_whole_pretraining_runs_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mini_pretrain.main(["--out", str(tmp_path / "mini"), "--shorten", "600"])
    trained = [line.split()[0] for line in capsys.readouterr().out.splitlines() if " cpu-s " in line]
    assert trained == [stage.name for stage in STAGES["mini"]]
    loaded = load_model(str(tmp_path / "mini" / "model"))
    assert loaded.frame == load_model("mini").frame
    with pytest.raises(SystemExit) as stopped:
        mini_pretrain.main(["--out", str(tmp_path / "mini"), "--shorten", "600"])
    assert stopped.value.code == 2 and "--resume" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        mini_pretrain.main(["--out", str(tmp_path / "mini"), "--shorten", "600", "--seed", "1", "--resume"])
    assert stopped.value.code == 2 and "other settings (seed 0 -> 1)" in capsys.readouterr().err
    mini_pretrain.main(["--out", str(tmp_path / "mini"), "--shorten", "600", "--resume"])
    assert " cpu-s " not in capsys.readouterr().out, "nothing is trained again"
    again = load_model(str(tmp_path / "mini" / "model")).model.state_dict()
    assert all(torch.equal(value, again[name]) for name, value in loaded.model.state_dict().items())


def test_some_of_its_sampled_answers_on_the_six_tasks_are_well_formed(tmp_path: Path) -> None:
    world = tmp_path / "world"
    write_world(world, WorldSpec(8, 3, depths_m=(7.0, 28.0), seed=TEST_SEED))
    told = ["--nuscenes", str(world), "--version", "v1.0-synthetic", "--describer", "truth", "--workers", "1"]
    build_surds([*told, "--depth-ranges", "fair", "--limit-units", "20", "--out", str(tmp_path / "surds")])
    asked = ["--data", str(tmp_path / "surds"), "--ckpt", "mini", "--temperature", "1", "--max-new-tokens", "128"]
    assert surds([*asked, "--batch-size", "100", "--out", str(tmp_path / "eval")]) == 0
    summary = json.loads((tmp_path / "eval" / "summary.json").read_text())
    card = json.loads((MINI / "scores.json").read_text())["six_tasks"]
    assert summary["questions"] == 200
    spread = 3 * (card["well_formed"] * (1 - card["well_formed"]) / 200) ** 0.5
    assert summary["well_formed"] == pytest.approx(card["well_formed"], abs=spread + 0.03)
    assert 0.1 < card["well_formed"] < 0.5  # something for GRPO to reward, and much to learn
    assert summary["score"] == pytest.approx(card["score"], abs=0.06)

"""Groups to packed rows and back: what lies where, and that nothing is lost."""

from __future__ import annotations

import pytest
import torch

from training.update.packing import IGNORED, Completions, GroupSpan, Pictures, pack, shuffle_blocks, unpack

PAD = 0


def completions(prompts: list[list[int]], written: list[list[int]], block: int) -> Completions:
    """Prompts padded on the left, one per block; completions on the right."""
    wide, width = max(map(len, prompts)), max(map(len, written))
    rows, masks = [], []
    for index, completion in enumerate(written):
        prompt = prompts[index // block]
        before, after = wide - len(prompt), width - len(completion)
        rows.append([PAD] * before + prompt + completion + [PAD] * after)
        masks.append([0] * before + [1] * (len(prompt) + len(completion)) + [0] * after)
    return Completions(torch.tensor(rows), torch.tensor(masks), width, block)


def counted(batch: Completions) -> torch.Tensor:
    """Positions 100, 101, .. of the prompts' tokens, 0 of pads, as (3, blocks, P); axes differ by thousands."""
    _, mask = batch.heads
    plain = (mask.cumsum(1) + 99) * mask
    return torch.stack([plain, plain + 1000, plain + 2000])


TWO_GROUPS = completions([[11, 12, 13], [21, 22]], [[1, 2, 3], [4], [5, 6], [7, 8, 9]], block=2)


def test_a_row_holds_each_prompt_once_and_every_completion() -> None:
    row = pack(TWO_GROUPS, counted(TWO_GROUPS))
    assert row.input_ids.tolist() == [[11, 12, 13, 1, 2, 13, 21, 22, 5, 22, 7, 8]]
    assert row.spans == (GroupSpan(2, (3, 1)), GroupSpan(1, (2, 3)))
    assert row.position_ids[0, 0].tolist() == [100, 101, 102, 103, 104, 102, 100, 101, 102, 101, 102, 103]
    assert torch.equal(row.position_ids[2], row.position_ids[0] + 2000)
    assert row.scored.tolist() == [2, 3, 4, 5, 7, 8, 9, 10, 11]
    assert row.labels.tolist() == [[1, 2, 3, 4, 5, 6, 7, 8, 9]]


def test_scores_go_back_to_the_tokens_they_are_of() -> None:
    row = pack(TWO_GROUPS, counted(TWO_GROUPS))
    scores = row.labels.float().requires_grad_()
    back = unpack(row, scores)
    assert back.tolist() == [[1, 2, 3], [4, 0, 0], [5, 6, 0], [7, 8, 9]]
    back.mul(torch.arange(12).view(4, 3)).sum().backward()
    assert scores.grad is not None and scores.grad.tolist() == [[0, 1, 2, 3, 6, 7, 9, 10, 11]]


@pytest.mark.parametrize("block", [1, 2, 3, 6])
def test_any_batch_comes_back_whole(block: int) -> None:
    numbers = torch.Generator().manual_seed(block)

    def some(low: int, high: int) -> list[int]:
        return torch.randint(1, 99, (int(torch.randint(low, high, (), generator=numbers)),)).tolist()

    prompts = [some(1, 8) for _ in range(6 // block)]
    written = [some(0, 6) for _ in range(5)] + [[1]]
    batch = completions(prompts, written, block)
    row = pack(batch, counted(batch))
    assert (
        unpack(row, row.labels.double()).long().tolist()
        == (batch.input_ids * batch.attention_mask)[:, -batch.width :].tolist()
    )
    length = sum(len(prompt) - 1 for prompt in prompts) + sum(map(len, written))
    assert row.input_ids.shape == (1, length) and row.position_ids.shape == (3, 1, length)
    assert sum(span.prefix + sum(span.branches) for span in row.spans) == length
    # Every scored place holds the token before its label, at the position before it.
    for place, label, cell in zip(row.scored, row.labels[0], row.cells, strict=True):
        index, step = divmod(int(cell), batch.width)
        at = batch.input_ids.shape[1] - batch.width + step
        assert batch.input_ids[index, at] == label and batch.input_ids[index, at - 1] == row.input_ids[0, place]
        assert row.position_ids[0, 0, place] == 99 + len(prompts[index // block]) + step


def test_completions_that_are_all_masked_still_leave_something_to_compute() -> None:
    batch = completions([[11, 12]], [[1, 2], [3]], block=2)
    batch.attention_mask[:, 2:] = 0
    row = pack(batch, counted(batch))
    assert row.input_ids.tolist() == [[11]] and row.labels.tolist() == [[IGNORED]] and len(row.scored) == 1
    scores = torch.tensor([[5.0]], requires_grad=True)
    assert unpack(row, scores).tolist() == [[0, 0], [0, 0]]
    unpack(row, scores).sum().backward()
    assert scores.grad is not None and scores.grad.tolist() == [[0]]


def test_prompts_that_differ_within_a_block_are_refused() -> None:
    ids, mask = TWO_GROUPS.input_ids.clone(), TWO_GROUPS.attention_mask
    ids[1, 2] = 14
    with pytest.raises(ValueError, match="different prompts"):
        pack(Completions(ids, mask, 3, 2), counted(TWO_GROUPS))
    order = torch.tensor([0, 2, 1, 3])  # what shuffling single rows would do
    with pytest.raises(ValueError, match="groups were taken apart"):
        pack(Completions(TWO_GROUPS.input_ids[order], mask[order], 3, 2), counted(TWO_GROUPS))
    with pytest.raises(ValueError, match="no whole blocks"):
        pack(Completions(TWO_GROUPS.input_ids[:3], mask[:3], 3, 2), counted(TWO_GROUPS))


def pictures(*of_rows: list[int]) -> Pictures:
    """One picture per number, filled with it; (1, 2, 2 x number) patches."""
    grids = [(1, 2, 2 * number) for row in of_rows for number in row]
    pixels = [torch.full((4 * number, 3), float(number)) for row in of_rows for number in row]
    return Pictures(torch.cat(pixels), torch.tensor(grids), tuple(map(len, of_rows)))


def test_pictures_are_kept_once_per_block() -> None:
    once = pictures([1, 2], [1, 2], [], [], [3], [3]).once_per(2)
    assert once.per_row == (2, 0, 0, 0, 1, 0)
    assert once.grid_thw.tolist() == [[1, 2, 2], [1, 2, 4], [1, 2, 6]]
    assert [int(value) for value in once.pixel_values[:, 0]] == [1] * 4 + [2] * 8 + [3] * 12
    again = once.once_per(2)
    assert again.per_row == once.per_row and torch.equal(again.pixel_values, once.pixel_values)
    assert once.of_rows(4, 6).grid_thw.tolist() == [[1, 2, 6]]
    assert once.of_rows(2, 4).pixel_values.shape == (0, 3)


def test_different_pictures_in_one_block_are_refused() -> None:
    with pytest.raises(ValueError, match=r"rows 2 and 3 .* different pictures"):
        pictures([1], [1], [2], [3]).once_per(2)
    of_one_size = pictures([1], [1])
    of_one_size.pixel_values[-1] += 0.5
    with pytest.raises(ValueError, match="different pictures"):
        of_one_size.once_per(2)


def test_shuffling_keeps_blocks_and_columns_together() -> None:
    torch.manual_seed(0)
    batch = {"ids": torch.arange(12), "names": [str(index) for index in range(12)], "none": None, "n": torch.tensor(5)}
    shuffled = shuffle_blocks(batch, 4)
    assert shuffled["ids"].tolist() != list(range(12)) and sorted(shuffled["ids"].tolist()) == list(range(12))
    assert shuffled["names"] == [str(index) for index in shuffled["ids"].tolist()]
    for block in shuffled["ids"].view(3, 4):
        assert block[0] % 4 == 0 and block.tolist() == list(range(block[0], block[0] + 4))
    assert shuffled["none"] is None and shuffled["n"] == 5

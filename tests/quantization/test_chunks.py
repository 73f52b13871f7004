"""Matrices in blocks of rows: every row once, small blocks, and not too many of them."""

import pytest
import torch

from falcon_gnn.quantization.chunks import CHUNK_VALUES, MOST_CHUNKS, Scratch, row_chunks


@pytest.mark.parametrize(("num_rows", "width"), [(0, 4), (1, 1), (4_491, 1_024), (44_906, 1_024), (100, 10**6)])
def test_chunks_cover_every_row_once(num_rows: int, width: int) -> None:
    rows = [row for chunk in row_chunks(num_rows, width) for row in range(chunk.start, chunk.stop)]
    assert rows == list(range(num_rows))


def test_a_chunk_of_a_mini_batch_has_no_more_than_half_a_million_values() -> None:
    assert all((rows.stop - rows.start) * 1_024 <= CHUNK_VALUES for rows in row_chunks(4_491, 1_024))


def test_a_tall_matrix_has_larger_chunks_and_not_more_of_them() -> None:
    assert len(list(row_chunks(44_906, 1_024))) <= MOST_CHUNKS
    assert len(list(row_chunks(10**7, 2_048))) <= MOST_CHUNKS


def test_scratch_is_one_buffer_for_a_name_whatever_shape_it_is_taken_in() -> None:
    scratch = Scratch(torch.empty(0))
    large = scratch.take("value", (3, 4))
    assert scratch.take("value", (3, 4)) is large
    small = scratch.take("value", (2, 5))
    assert small.shape == (2, 5)
    assert small.data_ptr() == large.data_ptr() == scratch.take("value", (3, 4)).data_ptr()
    assert scratch.take("other", (3, 4)).data_ptr() != large.data_ptr()

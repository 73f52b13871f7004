"""Ways of taking the same step in less memory, micro-batches of rows and blocks of columns, and their cost in time."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from math import ceil

from falcon_gnn.quantization.codec import SEED_ROWS
from falcon_gnn.quantization.row_blocks import has_narrow_input
from falcon_gnn.training.coded_columns import BLOCKS_TOGETHER
from falcon_gnn.training.config import ModelConfig, TrainConfig
from falcon_gnn.training.shapes import GraphShape

CODEC_TIME = 1.2
"""Time of a step with compressed activations in that of one without; measured on PPI's shapes (docs/performance.md)."""
COLUMN_TIME = 1.3
"""Time of a step by blocks of columns in that of the unsplit one: narrow products, measured likewise at 64 columns."""
_COLUMN_STEP = 8
_FEWEST_CODED_COLUMNS = 32
"""Narrower blocks of a compressed model cost more than they save: each makes all gradients of the last layer again."""


def exact_ways(shape: GraphShape, config: TrainConfig) -> list[list[TrainConfig]]:
    """Return ways of taking the configured step that change no number but the draws of codes, besides the unsplit one.

    Args:
        shape: What is trained on.
        config: The model and how it is trained.

    Returns:
        Families, the fastest first; inside a family each way needs less memory than the one before.
    """
    if config.micro_batches > 1 or config.column_blocks > 1:
        return []
    if config.trains_on_rows:
        if config.train_on == "rows" and config.model.batch_norm:
            return []
        num_blocks = ceil(ceil(shape.num_targets / config.batches_of_rows(shape.num_targets)) / SEED_ROWS)
        counts = sorted({ceil(num_blocks / blocks) for blocks in range(1, num_blocks)})
        is_swept = config.model.batch_norm and config.model.num_layers > 1
        kept = (True, False) if is_swept and config.model.bits is None else (True,)
        return [[replace(config, micro_batches=n, keep_matrix=keep) for n in counts] for keep in kept if counts]
    if config.model.num_layers == 1:
        return []
    width = config.model.hidden_channels
    fewest = _COLUMN_STEP if config.model.bits is None else _FEWEST_CODED_COLUMNS
    blocks = sorted({ceil(width / columns) for columns in range(fewest, width, _COLUMN_STEP)})
    return [[replace(config, column_blocks=n) for n in blocks]] if blocks else []


def relative_time(shape: GraphShape, config: TrainConfig) -> float:
    """Return the time of a node's step in that of the full-precision, unsplit step: dense products, and the codec.

    Args:
        shape: What is trained on.
        config: The model and how it is trained.
    """
    layers = _layer_products(shape, config)
    plain = 3 * sum(layers) - layers[0]
    spent: float = plain
    if config.trains_on_rows and config.micro_batches > 1 and config.model.batch_norm:
        spent = _swept_products(layers, _narrow_input(shape, config.model), config)
    elif config.column_blocks > 1:
        spent = (plain + _repeated_products(layers, config)) * COLUMN_TIME
    return spent / plain * (CODEC_TIME if config.model.bits is not None else 1.0)


def _layer_products(shape: GraphShape, config: TrainConfig) -> list[int]:
    """Return the multiplications per node of each linear layer, forward."""
    model = config.model
    width, depth = model.hidden_channels, model.num_layers
    num_inputs = shape.num_features * (model.num_hops + 1 if model.uses_hop_features else 1)
    widths = [num_inputs, *[width] * (depth - 1), shape.num_outputs]
    if model.model == "sign-original":
        # A linear layer per hop, side by side: their outputs are all the next layer's input.
        wide = (model.num_hops + 1) * width
        return [num_inputs * width, wide * widths[2], *(a * b for a, b in pairwise(widths))]
    factor = 2 if model.concat_self else 1
    return [factor * a * b for a, b in pairwise(widths)]


def _repeated_products(layers: Sequence[int], config: TrainConfig) -> int:
    """Return the multiplications per node that a step by columns repeats (:mod:`falcon_gnn.training.coded_columns`)."""
    if config.model.bits is None or config.model.num_layers == 2:
        return layers[0]
    times_read = ceil(config.column_blocks / BLOCKS_TOGETHER)
    return (times_read + 1) * layers[0] + config.column_blocks * layers[-1]


def _narrow_input(shape: GraphShape, model: ModelConfig) -> bool:
    """Return whether the input's scatter matrix spares sweeps (:attr:`RowChain.has_narrow_input`)."""
    blocks = 1 if model.model == "sign-original" else model.num_hops + 1
    return has_narrow_input(blocks * shape.num_features, model.hidden_channels)


def _swept_products(layers: Sequence[int], is_narrow: bool, config: TrainConfig) -> int:
    """Return the multiplications per node of a step in pieces with batch norm.

    They are counted from the sweeps of :mod:`falcon_gnn.training.row_steps` and
    :mod:`falcon_gnn.training.coded_rows`.
    """
    first, *_, head = layers
    forward, is_coded = list(accumulate(layers[:-1])), config.model.bits is not None
    keeps = config.keep_matrix and not is_coded
    if is_narrow and not is_coded and len(forward) == 1:
        return 3 * sum(layers) - first
    below = forward[-1]
    known = 1 if is_narrow else 0
    moments = sum(forward[known:]) if not keeps else below if forward[known:] else 0
    last_block = 3 * head + (0 if keeps else below)
    if is_coded:
        return moments + last_block + head + sum(2 * done - first for done in forward)
    rest = 2 * head + (below - layers[-2] if keeps else below) + 2 * below - first
    corrections = sum(3 * done - first for done in forward[known:-1])
    return moments + last_block + rest + corrections

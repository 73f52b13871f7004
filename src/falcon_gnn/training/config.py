"""What to train and how: two frozen configurations, checked when they are made. No torch is imported here."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self, get_args

from falcon_gnn.checks import check_choice, check_flag, check_kind, check_whole, is_number, plain_numbers
from falcon_gnn.errors import OptionError
from falcon_gnn.evaluation import ScoreName
from falcon_gnn.labels import Task

ModelName = Literal["gcn", "sign", "qsign", "sign-original", "cluster-gcn", "gas"]
Precision = Literal["float32", "tf32", "bf16"]
TrainOn = Literal["graph", "rows"]
FeaturesOn = Literal["auto", "device", "host"]
BITS = (1, 2, 4, 8)
"""Bits that divide a byte."""
_DEFAULT_QSIGN_BITS = 2
_ROW_MODELS = ("sign", "qsign", "sign-original")
_PART_MODELS = ("cluster-gcn", "gas")


DEFAULT_PIECE_BYTES = 16 * 2**20
"""Bytes of the widest layer that an evaluation computes together."""
_LARGEST_SEED = 2**64 - 1
_WIDEST = 2**30
"""The hidden channels whose weights, four bytes for each pair of channels, torch can count."""


@dataclass(frozen=True)
class ModelConfig:
    """A model and its sizes.

    Attributes:
        model: ``gcn`` (full batch), ``sign``, ``qsign`` (SIGN with compressed activations), ``sign-original`` (a linear
            layer per hop), ``cluster-gcn`` or ``gas`` (GNNAutoScale). The last two are a GCN trained in batches of
            METIS parts.
        hidden_channels: Width of the hidden layers, in [1, 2**30].
        num_layers: Linear layers from input to output, >= 1 (2 for ``sign-original``).
        dropout: Share of hidden values dropped in training, in [0, 1).
        batch_norm: Whether each hidden layer is batch-normalised.
        num_hops: Hops k of the SIGN models' features [X, ÃX, …, Ã^kX], >= 0; on the command also those that alike nodes
            are compared by.
        bits: Bits per activation kept for the backward pass: 1, 2, 4 or 8; by default 2 for ``qsign`` and full
            precision (None) for the others.
        concat_self: Whether GCN layers see [ÃH, H] in place of ÃH.
        num_parts: METIS parts of ``cluster-gcn`` and ``gas``, at least the number of batches; by default as many.
    """

    model: ModelName = "qsign"
    hidden_channels: int = 256
    num_layers: int = 3
    dropout: float = 0.5
    batch_norm: bool = False
    num_hops: int = 2
    bits: int | None = None
    concat_self: bool = False
    num_parts: int | None = None

    def __post_init__(self) -> None:
        """Check every value once.

        Raises:
            OptionError: If a value is not allowed; the message names it and what is.
        """
        plain_numbers(self)
        check_choice("model", self.model, get_args(ModelName))
        check_whole("hidden_channels", self.hidden_channels, 1)
        if self.hidden_channels > _WIDEST:
            msg = (
                f"hidden_channels must be at most 2**30, whose weights torch can count, got {self.hidden_channels}. "
                "Choose some hundreds."
            )
            raise OptionError(msg)
        fewest = 2 if self.model == "sign-original" else 1
        check_whole("num_layers", self.num_layers, fewest)
        _check_range("dropout", self.dropout, lambda v: 0 <= v < 1, "in [0, 1)")
        for name in ("batch_norm", "concat_self"):
            check_flag(name, getattr(self, name))
        check_whole("num_hops", self.num_hops, 0)
        if self.model == "qsign" and self.bits is None:
            object.__setattr__(self, "bits", _DEFAULT_QSIGN_BITS)
        check_choice("bits", self.bits, (*BITS, None))
        if self.model == "sign" and self.bits is not None:
            msg = f"bits={self.bits} makes SIGN a QSIGN. Use model='qsign', or bits=None."
            raise OptionError(msg)
        if self.concat_self and self.uses_hop_features:
            msg = f"concat_self is an option of the GCN models, got model={self.model!r}, whose hops hold X already."
            raise OptionError(msg)
        check_whole("num_parts", self.num_parts, 1, or_none=True)

    @property
    def uses_hop_features(self) -> bool:
        """Whether the model reads precomputed hop features, row by row, and never the adjacency."""
        return self.model in _ROW_MODELS

    @property
    def uses_parts(self) -> bool:
        """Whether the training graph is cut into METIS parts."""
        return self.model in _PART_MODELS

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values."""
        return asdict(self)


@dataclass(frozen=True)
class TrainConfig:
    """A model and how to train it.

    Attributes:
        model: The model.
        learning_rate: Adam's step size, > 0.
        weight_decay: L2 penalty added to the gradients, >= 0.
        num_epochs: Passes over the training nodes, >= 1.
        num_batches: Batches per epoch, >= 1; a ``gcn`` has 1.
        micro_batches: Pieces in which a batch is gone through, one after another, for less memory, >= 1: the weights
            move as without them, to rounding. Those of a row model are blocks of 256 rows, which batch norm goes
            through several times; those of ``cluster-gcn`` and ``gas`` are batches whose gradients are added up before
            a step, each with its own neighbors and moments.
        column_blocks: Blocks of columns in which the hidden layers of a ``gcn``, ``cluster-gcn`` or ``gas`` are gone
            through, for less memory, >= 1: exact to rounding, one matrix kept per hidden layer but the first. With
            ``bits`` that matrix is compressed, and in a model of three layers no hidden layer ever exists as a whole.
        keep_matrix: Whether one hidden matrix of the batch is kept between the sweeps that batch norm needs: measured
            on 4,491 x 1,024, it makes a step shorter and 17.5 MiB larger. With ``bits`` codes are kept in any case, and
            no matrix.
        eval_piece_bytes: Bytes of the widest layer that are computed together in an evaluation, >= 1,024: smaller
            pieces need less memory and more time. A memory budget makes them as small as it must.
        patience: Evaluations without a better validation score before training stops, >= 1; with none it never does.
        eval_every: Epochs between two evaluations, >= 1.
        seed: Draws weights, dropout, batches, METIS parts and stochastic rounding; on the command also a random split
            and the collapse.
        precision: ``float32``; ``bf16`` for autocast in the training steps, worth it on CUDA, and on CPUs with AMX; or
            ``tf32``, on CUDA, for products with inputs of 10 bits after the point.
        deterministic: Whether torch must use deterministic algorithms only. The same number of threads then gives the
            same weights to the bit; another number need not.
        validation_metric: Score that picks the best epoch; regression always uses the mean squared error.
        device: ``auto`` (CUDA where there is one), or any name torch knows.
        task: What the labels are: ``classes``, ``multilabel`` or ``regression``; told from the labels by default.
        num_classes: Number of classes (L); by default the largest of the training and the evaluation graph + 1.
        measure_memory: Whether the peak of a training step is measured, by three steps more at the end.
        normalize_hops: Whether each node's features are divided by their Euclidean length, hop by hop for the SIGN
            models, X alone for the others. So they are in training and in prediction: features on one scale.
        train_on: What a training step reads: the ``graph``, or for a ``gcn`` without ``concat_self`` ``rows`` of Ã^L X.
            Its L layers are then trained without edges, and the weights used as a GCN on the original graph.
        weight_power: How much ``graph.node_weight`` counts in the loss, in [0, 1]: the power it is raised to. 1 is the
            mean over the nodes that the weights stand for; below, a few heavy nodes say less; 0 leaves weights out.
        features_on: Where on CUDA the dense features of all training nodes lie, if a batch is a part of them: on the
            ``device``, in ``host`` memory, from where a batch is copied while the one before is trained on, or
            ``auto``: on the device if they fit beside the predicted step, in a memory budget or in what is free.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    learning_rate: float = 0.001
    weight_decay: float = 0.0
    num_epochs: int = 200
    num_batches: int = 1
    micro_batches: int = 1
    column_blocks: int = 1
    keep_matrix: bool = True
    eval_piece_bytes: int = DEFAULT_PIECE_BYTES
    patience: int | None = 50
    eval_every: int = 1
    seed: int = 0
    precision: Precision = "float32"
    deterministic: bool = False
    validation_metric: ScoreName = "accuracy"
    device: str = "auto"
    task: Task | None = None
    num_classes: int | None = None
    measure_memory: bool = True
    normalize_hops: bool = False
    train_on: TrainOn = "graph"
    weight_power: float = 1.0
    features_on: FeaturesOn = "auto"

    @property
    def trains_on_rows(self) -> bool:
        """Whether a training step reads rows of precomputed features, and never the adjacency."""
        return self.model.uses_hop_features or self.train_on == "rows"

    def __post_init__(self) -> None:
        """Check every value once.

        Raises:
            OptionError: If a value is not allowed; the message names it and what is.
        """
        plain_numbers(self)
        check_kind("model", self.model, ModelConfig)
        check_kind("device", self.device, str)
        _check_range("learning_rate", self.learning_rate, lambda v: 0 < v < float("inf"), "above 0")
        _check_range("weight_decay", self.weight_decay, lambda v: 0 <= v < float("inf"), "of at least 0")
        for name in ("num_epochs", "num_batches", "micro_batches", "column_blocks", "eval_every"):
            check_whole(name, getattr(self, name), 1)
        for name in ("patience", "num_classes"):
            check_whole(name, getattr(self, name), 1, or_none=True)
        for name in ("deterministic", "keep_matrix", "measure_memory", "normalize_hops"):
            check_flag(name, getattr(self, name))
        check_whole("seed", self.seed, 0)
        if self.seed > _LARGEST_SEED:
            msg = f"seed must be a whole number below 2**64, which torch takes, got {self.seed}. Choose a smaller one."
            raise OptionError(msg)
        check_whole("eval_piece_bytes", self.eval_piece_bytes, 1_024)
        check_choice("precision", self.precision, get_args(Precision))
        check_choice("validation_metric", self.validation_metric, get_args(ScoreName))
        check_choice("task", self.task, (*get_args(Task), None))
        _check_range("weight_power", self.weight_power, lambda v: 0 <= v <= 1, "in [0, 1]")
        check_choice("train_on", self.train_on, get_args(TrainOn))
        check_choice("features_on", self.features_on, get_args(FeaturesOn))
        if self.train_on == "rows" and (self.model.model != "gcn" or self.model.concat_self):
            msg = (
                f"train_on='rows' needs model='gcn' without concat_self, got model={self.model.model!r}, concat_self="
                f"{self.model.concat_self}. The SIGN models train on rows anyway; leave train_on out for the others."
            )
            raise OptionError(msg)
        if self.model.model == "gcn" and self.train_on == "graph" and self.num_batches != 1:
            msg = f"model='gcn' trains on the whole graph, got num_batches={self.num_batches}. Use 1, or 'cluster-gcn'."
            raise OptionError(msg)
        if self.micro_batches > 1 and self.model.model == "gcn":
            self._check_gcn_pieces()
        if self.column_blocks > 1 and self.trains_on_rows:
            msg = (
                f"column_blocks must be 1 here, got {self.column_blocks}: models that read a graph (gcn, cluster-gcn, "
                "gas) go through their hidden layers by columns. Leave it out; rows take micro_batches."
            )
            raise OptionError(msg)
        parts = self.model.num_parts
        if self.model.uses_parts and parts is not None and parts < self.batches_of_parts:
            what = "num_batches" if self.micro_batches == 1 else "num_batches x micro_batches"
            msg = f"num_parts must be at least {what} ({self.batches_of_parts}), got {parts}."
            raise OptionError(msg)

    def _check_gcn_pieces(self) -> None:
        if self.train_on == "graph":
            what, fix = "the whole graph has no pieces for model='gcn'", "leave it out"
        elif self.model.batch_norm:
            what, fix = "train_on='rows' with batch norm has no pieces", "use batch_norm=False, or more num_batches"
        else:
            return
        msg = f"micro_batches must be 1 here, got {self.micro_batches}: {what}. Either {fix}, or take model='sign'."
        raise OptionError(msg)

    @property
    def batches_of_parts(self) -> int:
        """Batches of METIS parts that are read in an epoch: every ``micro_batches`` of them move the weights once."""
        return self.num_batches * self.micro_batches

    def batches_of_rows(self, num_rows: int) -> int:
        """Return the batches that so many rows make: never more than rows, or, for batch norm, than pairs of rows."""
        return min(self.num_batches, max(1, num_rows // 2) if self.model.batch_norm else num_rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, the model's nested, as JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the configuration that :meth:`to_dict` wrote."""
        return cls(**{**values, "model": ModelConfig(**values["model"])})


def _check_range(name: str, value: Any, is_inside: Callable[[float], bool], allowed: str) -> None:
    if not is_number(value) or not is_inside(value):
        msg = f"{name} must be a number {allowed}, got {value!r}."
        raise OptionError(msg)

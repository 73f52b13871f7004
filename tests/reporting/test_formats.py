from hypothesis import given
from hypothesis import strategies as st

from falcon_gnn.reporting.formats import (
    format_count,
    format_ratio,
    format_seconds,
    format_share,
    format_signed,
    format_tick,
)
from falcon_gnn.resources import format_bytes


def test_a_share_below_one_is_never_shown_as_100_percent() -> None:
    assert format_share(0.999999) == ">99.9%"


def test_a_share_above_zero_is_never_shown_as_0_percent() -> None:
    assert format_share(1e-9) == "<0.01%"


def test_a_ratio_to_nothing_is_a_dash() -> None:
    assert format_ratio(0, 0) == "–"


@given(st.integers(0, 10**12))
def test_a_whole_number_is_shown_in_full(number: int) -> None:
    assert int(format_count(number).replace(",", "")) == number


@given(st.floats(1e-9, 1.0))
def test_a_share_is_a_rounding_step_from_the_truth_or_a_bound(share: float) -> None:
    shown, percent = format_share(share), 100 * share
    value = float(shown.strip("<>%"))
    if shown[0] in "<>":
        assert value > percent if shown[0] == "<" else value < percent
    else:
        assert abs(value - percent) <= 0.05 + 1e-9


def test_durations_change_unit_without_a_gap() -> None:
    shown = [format_seconds(value) for value in (0.00001, 0.00949, 0.00951, 0.9994, 0.9996, 59.4, 59.6, 3601)]
    assert shown == ["<0.1 ms", "9.5 ms", "10 ms", "999 ms", "1 s", "59.4 s", "1 min 0 s", "60 min 1 s"]


def test_sizes_are_in_binary_units() -> None:
    assert [format_bytes(value) for value in (0, 1023, 1024, 3 * 2**40)] == ["0.0 B", "1,023.0 B", "1.0 KiB", "3.0 TiB"]


def test_a_difference_that_rounds_to_zero_has_no_sign() -> None:
    assert format_signed(-0.0004, 2) == "0"


def test_a_tick_below_zero_has_a_true_minus() -> None:
    assert format_tick(-1500) == "−1.5k"

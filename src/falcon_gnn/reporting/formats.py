"""Numbers as a reader wants them: few digits, a unit, thousands separated."""

MINUS = "\N{MINUS SIGN}"
NOTHING = "\N{EN DASH}"


def format_count(value: float) -> str:
    """Return a whole number with thousands separated, anything else with at most two decimals.

    Example:
        >>> format_count(44906), format_count(27.309), format_count(13.0)
        ('44,906', '27.31', '13')
    """
    return f"{value:,.0f}" if value == round(value) else f"{value:,.2f}"


def format_share(share: float) -> str:
    """Return a share in percent with few decimals; 0% and 100% only where it is exactly that.

    Example:
        >>> format_share(0.33403), format_share(0.99999), format_share(0.00021), format_share(1.0)
        ('33.4%', '>99.9%', '0.02%', '100%')
    """
    percent = share * 100
    if percent == round(percent):
        return f"{percent:,.0f}%"
    if 99.95 <= percent < 100:
        return ">99.9%"
    if percent < 0.005:
        return "<0.01%"
    return f"{percent:,.1f}%" if percent >= 0.995 else f"{percent:.2f}%"


def format_ratio(part: float, whole: float) -> str:
    """Return ``part`` as a share of ``whole``, or a dash where there is no whole."""
    return format_share(part / whole) if whole else NOTHING


def format_signed(value: float, num_decimals: int) -> str:
    """Return a number with its sign, a true minus, and 0 where nothing but zeros would be left.

    Example:
        >>> format_signed(0.456, 2), format_signed(-2.0, 2), format_signed(-0.001, 2)
        ('+0.46', '−2.00', '0')
    """
    text = f"{abs(value):,.{num_decimals}f}"
    if float(text.replace(",", "")) == 0:
        return "0"
    return ("+" if value > 0 else MINUS) + text


def format_seconds(seconds: float) -> str:
    """Return a duration in the unit that suits it.

    Example:
        >>> format_seconds(0.00042), format_seconds(0.2547), format_seconds(1.884), format_seconds(125)
        ('0.4 ms', '255 ms', '1.88 s', '2 min 5 s')
    """
    if seconds < 0.00005:
        return "<0.1 ms"
    if seconds < 0.0095:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 59.5:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes:,} min {rest} s"


def format_tick(value: float) -> str:
    """Return the short form of a number for an axis.

    Example:
        >>> format_tick(1500), format_tick(0.1), format_tick(2e6), format_tick(0)
        ('1.5k', '0.1', '2M', '0')
    """
    for unit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{suffix}".replace("-", MINUS)
    return f"{value:g}".replace("-", MINUS)

"""What options may be, looked at once, where a configuration is made."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from difflib import get_close_matches
from fnmatch import fnmatchcase
from numbers import Integral, Real
from typing import Any

from falcon_gnn.errors import OptionError


def check_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Stop at a value that is not among the choices, with the nearest one where a text is given.

    True is not 1 here, and 2.0 is not 2.
    """
    if not any(_is_same(value, choice) for choice in choices):
        near = (
            get_close_matches(value, [c for c in choices if isinstance(c, str)], n=1) if isinstance(value, str) else []
        )
        hint = f" Did you mean {near[0]!r}?" if near else ""
        msg = f"{name} must be one of {', '.join(map(str, choices))}, got {value!r}.{hint}"
        raise OptionError(msg)


def _is_same(value: object, choice: object) -> bool:
    is_of_kind = isinstance(value, type(choice)) and isinstance(value, bool) == isinstance(choice, bool)
    return is_of_kind and value == choice


def plain_numbers(config: Any) -> None:
    """Turn NumPy's and other libraries' numbers in the fields of a configuration into Python's, which JSON takes."""
    for entry in fields(config):
        value = getattr(config, entry.name)
        if isinstance(value, Real) and type(value).__module__ != "builtins":
            object.__setattr__(config, entry.name, int(value) if isinstance(value, Integral) else float(value))


def check_whole(name: str, value: object, least: int, *, or_none: bool = False) -> None:
    """Stop at a value that is not a whole number of at least ``least``, or None where that is allowed."""
    if or_none and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        allowed = f"a whole number of at least {least}" + (" or None" if or_none else "")
        msg = f"{name} must be {allowed}, got {value!r}."
        raise OptionError(msg)


def check_flag(name: str, value: object) -> None:
    """Stop at a value that is neither True nor False."""
    if not isinstance(value, bool):
        msg = f"{name} must be True or False, got {value!r}."
        raise OptionError(msg)


def check_kind(name: str, value: object, *kinds: type) -> None:
    """Stop at a value of another type."""
    if not isinstance(value, kinds):
        allowed = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
        msg = f"{name} must be a {allowed}, got {type(value).__name__}."
        raise OptionError(msg)


def as_names(option: str, names: object) -> tuple[str, ...]:
    """Return a name, or a sequence of names, as a tuple; stop at anything else."""
    found = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, Iterable) else (names,)
    if not all(isinstance(name, str) for name in found):
        msg = f"{option} must be a name or a sequence of names, got {names!r}."
        raise OptionError(msg)
    return found


def is_number(value: object) -> bool:
    """Whether a value is a real number; True and False are none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def pick_names(option: str, wanted: Iterable[str], known: Sequence[str]) -> list[str]:
    """Return the known names that are wanted, each once.

    Args:
        option: The option that wants them, for the message.
        wanted: Names; patterns such as ``v*``, whose names come in the order of the known ones; or several of both with
            commas, unless the whole is a name.
        known: What is there.

    Raises:
        OptionError: If one is not there.
    """
    picked = [name for text in wanted for name in _names_in(text, option, known)]
    return list(dict.fromkeys(picked))


def pick_name(option: str, wanted: str, known: Sequence[str]) -> str:
    """Return the known name that is wanted, or the only one that a pattern stands for; arguments as above.

    Raises:
        OptionError: If it is not there, or there are several.
    """
    picked = pick_names(option, [wanted], known)
    if len(picked) > 1:
        msg = f"{option} must name one of what is there, got {wanted!r} for {', '.join(map(repr, picked))}."
        raise OptionError(msg)
    return picked[0]


def _names_in(text: str, option: str, known: Sequence[str]) -> list[str]:
    found = [text] if text in known else [name for name in known if fnmatchcase(name, text)]
    if found:
        return found
    if "," in text:
        return pick_names(option, [part.strip() for part in text.split(",")], known)
    there = ", ".join(map(repr, known)) or "nothing"
    msg = f"{option} must name what is there ({there}), got {text!r}."
    raise OptionError(msg)

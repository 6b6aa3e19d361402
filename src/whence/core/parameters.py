"""One declaration per parameter of a protocol: its name, its default, its range, the mode in which it counts.

A core's constructor, the registry, `whence protocols` and the checks of scenarios and live groups all read
the declaration. A value that cannot be meant is refused by name, and so is a parameter that the chosen mode
does not use: to ignore it would promise something that is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from whence.errors import ParameterError


@dataclass(frozen=True)
class Parameter:
    """One parameter; `only` is (switch, value): it counts where the parameter `switch` has that value."""

    name: str
    default: Any
    allowed: str  # what it may be, in words
    accepts: Callable[[object], bool]
    only: tuple[str, Any] | None = None

    def check(self, value: object) -> None:
        """Refuse a value that cannot be meant."""
        if not self.accepts(value):
            raise ParameterError(self.name, f"{value!r} is not {self.allowed}", f"Use {self.allowed}")


def whole(
    name: str, default: int | None, low: int, high: int | None = None, *, optional: bool = False
) -> Parameter:
    """Return a whole number from `low` to `high` (None: without a bound); `optional`: or None."""

    def accepts(value: object) -> bool:
        if value is None:
            return optional
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return is_whole and low <= value and (high is None or value <= high)  # type: ignore[operator]

    to = "" if high is None else f" to {high}"
    return Parameter(name, default, f"a whole number from {low}{to}", accepts)


def flag(name: str, *, default: bool) -> Parameter:
    """Return a parameter that is true or false."""
    return Parameter(name, default, "true or false (a boolean)", lambda value: isinstance(value, bool))


def choice(name: str, default: str, options: tuple[str, ...]) -> Parameter:
    """Return a word out of a few."""
    return Parameter(name, default, f"one of {', '.join(options)}", lambda value: value in options)


def anything(name: str, default: Any, allowed: str) -> Parameter:
    """Return a parameter that the core itself looks at."""
    return Parameter(name, default, allowed, lambda value: True)


def _meant(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), 1)
    return f"Did you mean {near[0]!r}? " if near else ""


class Parameters:
    """All parameters of a core, or of a protocol with several modes."""

    def __init__(self, *declared: Parameter) -> None:
        self._declared = {parameter.name: parameter for parameter in declared}

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._declared.values())

    @classmethod
    def by_mode(cls, switch: Parameter, modes: Mapping[Any, Parameters], place: int = 0) -> Parameters:
        """Return the parameters of a protocol whose `switch` chooses between declarations.

        `place` is that of the switch in the list: live nodes greet each other with the list in this order.
        """
        found: dict[str, Parameter] = {}
        for value, parameters in modes.items():
            for parameter in parameters:
                is_shared = all(parameter.name in other.defaults for other in modes.values())
                only = None if is_shared else (switch.name, value)
                found.setdefault(parameter.name, replace(parameter, only=only))
        declared = list(found.values())
        return cls(*declared[:place], switch, *declared[place:])

    @property
    def defaults(self) -> dict[str, Any]:
        """Every parameter with its default."""
        return {name: parameter.default for name, parameter in self._declared.items()}

    def counts(self, name: str, given: Mapping[str, Any]) -> bool:
        """Return whether a parameter counts in the mode that `given` chooses."""
        only = self._declared[name].only
        return only is None or given.get(only[0], self._declared[only[0]].default) == only[1]

    def read(self, protocol: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the value of every parameter, given or by default; refuse what cannot be meant."""
        for name, value in given.items():
            if name not in self._declared:
                raise ParameterError(
                    f"parameter {name!r} of protocol {protocol!r}",
                    "there is none of that name",
                    f"{_meant(name, self._declared)}Choose from: "
                    f"{', '.join(sorted(self._declared)) or 'none'}",
                )
            self._declared[name].check(value)
        for name in given:
            if not self.counts(name, given):
                switch, value = self._declared[name].only or ("", None)
                raise ParameterError(
                    name,
                    f"protocol {protocol!r} uses it only with {switch} = {value!r}",
                    f"Leave it out, or set {switch} to {value!r}",
                )
        return {**self.defaults, **given}

"""Sampling of a clip's frames: at presentation times, by a named rule."""

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from pipeline.images.recipes import RecipeError

_RULE = re.compile(r"all|(every|fps|even):([0-9]+(?:\.[0-9]+)?)")


@dataclass(frozen=True)
class Sampling:
    """Times at which frames are sampled, relative to the first frame's presentation.

    At each time, the frame shown then is selected. The arithmetic is exact.
    """

    rule: str
    """"every:<seconds>" samples at 0, x, 2x ... before the end; "fps:<number>" the same with x =
    1 / number; "even:<number>" in the middle of each of that many equal parts; "all" every frame
    once."""

    def __post_init__(self) -> None:
        """Raise if the rule is unknown."""
        kind, number = self._parts()
        if kind != "all" and (number <= 0 or (kind == "even" and number.denominator != 1)):
            raise self._unknown()

    def times(self, seconds: Fraction) -> list[Fraction] | None:
        """Return the times in a clip of this length, at least one; None: all frames."""
        kind, number = self._parts()
        if kind == "all":
            return None
        if kind == "even":
            return [(2 * k + 1) * seconds / (2 * number) for k in range(int(number))]
        step = number if kind == "every" else 1 / number
        return [k * step for k in range(max(1, math.ceil(seconds / step)))]

    def _parts(self) -> tuple[str, Fraction]:
        match = _RULE.fullmatch(self.rule)
        if match is None:
            raise self._unknown()
        return (match[1], Fraction(match[2])) if match[1] else ("all", Fraction(1))

    def _unknown(self) -> RecipeError:
        return RecipeError(
            f"the frames {self.rule!r} are unknown; expected every:SECONDS, fps:NUMBER, "
            "even:NUMBER or all, as in every:0.5"
        )

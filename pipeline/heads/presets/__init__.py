"""Published systems as data with a name, a module for each paper.

`preset` says what a preset is. Each has the values of its paper or of its published program, and
next to them what two smaller sizes change: "small", for two cores and a few thousand images, with
image features of EfficientNet-Lite0 and word vectors of 50 dimensions, which come with packages,
narrow networks and short trainings; and "tiny" for a few hundred images, on which an experiment
takes seconds and its validation curve still flattens. A head's defaults are those of the paper that
it is named after here. `leaves_open` says what stands for what neither paper nor program says.
`pipeline.heads.experiments` resolves a preset at a size.
"""

from pipeline.heads import HeadError
from pipeline.heads.presets import (
    dong,
    faghri,
    kiros,
    lee,
    ours,
    qian,
    radford,
    wang,
    wang_phrases,
    yan,
)
from pipeline.heads.presets.preset import Preset as Preset
from pipeline.wording import did_you_mean

PRESETS: dict[str, Preset] = {
    **qian.PRESETS,
    **wang.PRESETS,
    **wang_phrases.PRESETS,
    **dong.PRESETS,
    **kiros.PRESETS,
    **yan.PRESETS,
    **faghri.PRESETS,
    **lee.PRESETS,
    **ours.PRESETS,
    **radford.PRESETS,
}
"""Every published system by name, and ours."""


def find_preset(name: str) -> Preset:
    """Return a published system by name.

    Raises
    ------
    HeadError
        There is none of this name; the nearest are listed.
    """
    if name not in PRESETS:
        hint = did_you_mean(name, PRESETS, "pipeline list experiments")
        raise HeadError(f"no preset is called {name!r}; {hint}")
    return PRESETS[name]

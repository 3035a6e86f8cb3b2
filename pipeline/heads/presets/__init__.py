"""Published systems as named data, one module per paper or family.

`preset` defines a preset. Each has the values of its paper or published program, and the changes
for two smaller sizes: "small", for two cores and a few thousand images, with packaged features
(EfficientNet-Lite0) and word vectors (50 dimensions), narrow networks and short trainings; and
"tiny", for a few hundred images, on which an experiment runs in seconds and its validation curve
still flattens. A head's defaults are those of the paper that it is named after here. `leaves_open`
states our choices where paper and program are silent, and our deviations.
`pipeline.heads.experiments` resolves a preset at a size.
"""

from pipeline.heads import HeadError
from pipeline.heads.presets import dong, faghri, kiros, ours, qian, wang, wang_phrases, yan
from pipeline.heads.presets.preset import Preset as Preset
from pipeline.store.wording import did_you_mean

PRESETS: dict[str, Preset] = {
    **qian.PRESETS,
    **wang.PRESETS,
    **wang_phrases.PRESETS,
    **dong.PRESETS,
    **kiros.PRESETS,
    **yan.PRESETS,
    **faghri.PRESETS,
    **ours.PRESETS,
}
"""Presets by name: every published system, and ours."""


def find_preset(name: str) -> Preset:
    """Return a preset by name; a HeadError lists the names nearest to an unknown one."""
    if not isinstance(name, str) or name not in PRESETS:
        hint = did_you_mean(name, PRESETS, "pipeline list experiments")
        raise HeadError(f"no preset is called {name!r}; {hint}")
    return PRESETS[name]

"""Qian & Lamberti 2018: regression to image features, and recurrent sentence encoders."""

from dataclasses import replace

from pipeline.heads.architectures.ridge import RidgeSettings
from pipeline.heads.architectures.vse import VseSettings
from pipeline.heads.presets.preset import (
    GLOVE_50,
    GLOVE_300,
    MEAN_GLOVE_50,
    SMALL_GRU,
    Changes,
    Preset,
    features,
    with_settings,
)

_BASELINE_OPEN = (
    "GloVe 6B, the 300-dimensional vectors trained on the Wikipedia text that the paper mentions; "
    "ridge 1e-4"
)
_BASELINE = Preset(
    "ridge",
    RidgeSettings(),
    "vgg19-fc7-10crop",
    features("mean-glove-6b-300d", "mean", vectors=GLOVE_300),
    source="Qian & Lamberti 2018, sections 4.1 and 5",
    leaves_open=f"{_BASELINE_OPEN}; five captions per image are queries, in the paper one",
    small=Changes({"image_scaling": "centred"}, MEAN_GLOVE_50),
)
_GRU_OPEN = (
    "patience of 10 epochs; images of unit length, as in order-embeddings, on which they build; "
    "every training word, no punctuation, an end mark; five captions per image are queries, in "
    "the paper one"
)
_GRU = Preset(
    "vse",
    VseSettings(image_scaling="unit"),
    "vgg19-fc7-10crop",
    features("token-ids-qian"),
    source="Qian & Lamberti 2018, sections 4.2 and 5",
    leaves_open="learning rate 0.001, as in order-embeddings, since a few thousand images hardly "
    f"train at the paper's 0.05; {_GRU_OPEN}",
    small=Changes({**SMALL_GRU, "word_dim": 50, "epochs": 9, "lr_decay": 0.2, "lr_decay_every": 6}),
)
_GLOVE = replace(_GRU, word_vectors=GLOVE_300, small=replace(_GRU.small, word_vectors=GLOVE_50))
_OTHER_SIMILARITIES = "Qian & Lamberti 2018, section 2: similarities other than Euclidean distance"

PRESETS = {
    "qian2018-baseline": _BASELINE,
    "qian2018-baseline-weight": replace(
        _BASELINE,
        average_captions=True,
        leaves_open=f"{_BASELINE_OPEN}; the regression is fitted on mean captions, too",
    ),
    "qian2018-gru": _GRU,
    "qian2018-gru-glove": _GLOVE,
    "qian2018-gru-glove-fixed": with_settings(_GLOVE, train_words=False),
    "qian2018-gru-glove-printed-rate": replace(
        with_settings(_GLOVE, learning_rate=0.05),
        leaves_open=_GRU_OPEN,
        small=replace(_GLOVE.small, settings={**_GLOVE.small.settings, "learning_rate": 0.05}),
    ),
    "qian2018-gru-glove-cosine": replace(
        with_settings(_GLOVE, similarity="cosine"),
        source=_OTHER_SIMILARITIES,
    ),
    "qian2018-gru-glove-order": replace(
        with_settings(_GLOVE, similarity="order", l2_normalise="both", absolute=True, margin=0.05),
        source=_OTHER_SIMILARITIES,
        leaves_open=f"unit length, absolute values and margin as in Vendrov; {_GLOVE.leaves_open}",
    ),
    "qian2018-lstm-glove": with_settings(_GLOVE, cell="lstm"),
    "qian2018-gru-glove-bidirectional": with_settings(_GLOVE, bidirectional=True),
    "qian2018-gru-glove-stacked": with_settings(_GLOVE, layers=2),
    "qian2018-gru-glove-stacked-bidirectional": with_settings(_GLOVE, layers=2, bidirectional=True),
}

"""Experiments: a preset at a size, and what differs from it.

`SMALL` is the size for two cores and a few thousand images. Image features are those of
EfficientNet-Lite0 and word vectors GloVe of 50 dimensions, which come with packages; networks are
narrow, and trainings short. `TINY` makes of it a size for a few hundred images, on which a row
takes seconds and its validation curve still flattens.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from pipeline.heads import HeadError
from pipeline.heads.base import settings_from
from pipeline.heads.head_types import CaptionFeatures, Experiment, Finetuning, head_kind
from pipeline.heads.presets import find_preset

Size = Literal["paper", "small", "tiny"]


@dataclass(frozen=True)
class Changes:
    """What differs from a preset.

    Attributes
    ----------
    settings : of the head.
    captions : None leaves the preset's.
    word_vectors : in place of the preset's; None starts words at random.
    finetuning : what differs from the preset's.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    captions: CaptionFeatures | None = None
    word_vectors: str | None = None
    finetuning: Mapping[str, Any] = field(default_factory=dict)


IMAGES = {
    "resnet152-grid": "efficientnet-lite0-grid",
    "googlenet-pool+mfcc-bow-1024": "efficientnet-lite0-pool+mfcc-bow-1024",
}
"""Recipes in place of a preset's; every other one becomes `POOLED_IMAGES`, but for a library's
model, "open-clip:<model>", and several networks side by side, which stay."""

POOLED_IMAGES = "efficientnet-lite0-pool"

_GLOVE, _OWN = "glove-6b-50d", "word2vec-100d"
TRAINED_VECTORS: dict[str, Mapping[str, Any]] = {
    _OWN: {"train": "word2vec", "dim": 100, "epochs": 20}
}
"""Word vectors that are trained on the dataset's own captions: options of `pipeline vectors`."""

_MEAN = CaptionFeatures("mean-glove-6b-50d", "mean")


def _fisher(mixtures: str) -> CaptionFeatures:
    name = f"fv-{mixtures}"
    return CaptionFeatures(f"{name}-pca1000", name, {"sample": 20_000, "pca": 1000})


_FISHER = _fisher("hglmm")
_COUNTS_AND_FISHER = CaptionFeatures("tfidf+fv-hglmm", "tfidf+fv-hglmm", {"sample": 20_000})
_COUNTS = CaptionFeatures("bow-vsepp", "bow", {"tokenizer": "vsepp"})
_OWN_WORDS = CaptionFeatures("token-ids-words", "token-ids-words", {"vectors": _OWN})
_YAN_CAPTIONS = CaptionFeatures("token-ids-yan", "token-ids-yan")
_PHRASES = CaptionFeatures("phrases-fv-hglmm-pca1000", "fv-hglmm", {"sample": 20_000, "pca": 1000})
_W2V_MEAN = CaptionFeatures("mean-w2vv", "mean-w2vv", {"vectors": _OWN})
_W2V_ALL = CaptionFeatures("w2vv-multiscale", "bow+mean-w2vv+token-ids-w2vv", {"vectors": _OWN})

_WANG = {"dim": 256, "epochs": 45, "lr_decay_every": 30}
# A batch of 1,500 of some 10,000 pairs would make too few updates.
_REGIONS = {"hidden": 1024, "dim": 256, "batch_size": 300, "epochs": 24, "lr_decay_every": 10}
_REGIONS_MINED = {
    "hidden": 1024,
    "dim": 256,
    "batch_size": 300,
    "epochs": 10,
    "learning_rate": 0.01,
}
_W2VV = {"hidden": 512, "epochs": 40, "learning_rate": 0.001}
_W2VV_GRU = {**_W2VV, "word_dim": 50, "hidden_size": 256}
_CLIPS = {"epochs": 12, "learning_rate": 0.0005}
# Few images make few updates, which need a higher rate; chosen on Flickr8k's dev images.
_GRU = {"dim": 256, "image_scaling": "unit", "learning_rate": 0.004}
_QIAN = {**_GRU, "word_dim": 50, "epochs": 9, "lr_decay": 0.2, "lr_decay_every": 6}
_VSEPP = {**_GRU, "epochs": 8, "lr_decay": 0.2, "lr_decay_every": 5}
# Without clipping one seed of three stays at chance.
_KIROS = {"word_dim": 100, "image_scaling": "standardised", "clip": 20.0, "epochs": 14}
# With Adam; the paper's plain gradient descent is at kiros2014-lstm.
_BAG = {
    "optimiser": "adam", "learning_rate": 0.001, "batch_size": 128, "lr_decay": 0.85, "epochs": 8,
    "image_scaling": "standardised",
}  # fmt: skip
_YAN = {
    "dim": 128, "attention_heads": 4, "word_dim": 50, "batch_size": 64, "learning_rate": 0.0005,
    "lr_milestones": (12, 15), "mean_hinge_epochs": 1, "epochs": 17,
}  # fmt: skip
_SCAN = {
    "dim": 256, "batch_size": 64, "learning_rate": 0.002, "lr_decay_every": 5,
    "mean_hinge_epochs": 1, "epochs": 8,
}  # fmt: skip
# An epoch takes every image once: five captions an image would be five times the work.
_TUNED = {
    "epoch": "images", "epochs": 10, "learning_rate": 0.0002, "lr_decay": 0.8, "lr_decay_every": 1,
}  # fmt: skip
_TUNED_NETWORK = {"learning_rate": 0.0001, "smallest_crop": 0.5, "first_layer": "_blocks.5"}

SMALL: dict[str, Changes] = {
    "qian2018-baseline": Changes({"image_scaling": "centred"}, _MEAN),
    "qian2018-baseline-weight": Changes({"image_scaling": "centred"}, _MEAN),
    "qian2018-gru": Changes(_QIAN),
    "qian2018-gru-glove": Changes(_QIAN, word_vectors=_GLOVE),
    "qian2018-gru-glove-fixed": Changes(_QIAN, word_vectors=_GLOVE),
    "qian2018-gru-glove-printed-rate": Changes(
        {**_QIAN, "learning_rate": 0.05}, word_vectors=_GLOVE
    ),
    "qian2018-lstm-glove": Changes(_QIAN, word_vectors=_GLOVE),
    "qian2018-gru-glove-bidirectional": Changes(_QIAN, word_vectors=_GLOVE),
    "qian2018-gru-glove-stacked": Changes(_QIAN, word_vectors=_GLOVE),
    "qian2018-gru-glove-stacked-bidirectional": Changes(_QIAN, word_vectors=_GLOVE),
    "wang2016-linear-one-directional": Changes(_WANG, _FISHER),
    "wang2016-linear-bidirectional": Changes(_WANG, _FISHER),
    "wang2016-linear-bidirectional-structure": Changes(_WANG, _FISHER),
    "wang2016-nonlinear-one-directional": Changes({**_WANG, "hidden": 1024}, _FISHER),
    "wang2016-nonlinear-bidirectional": Changes({**_WANG, "hidden": 1024}, _FISHER),
    "wang2016-nonlinear-bidirectional-structure": Changes({**_WANG, "hidden": 1024}, _FISHER),
    "wang2016-nonlinear-bidirectional-structure-mean": Changes({**_WANG, "hidden": 1024}, _MEAN),
    "wang2016-nonlinear-bidirectional-structure-tfidf": Changes({**_WANG, "hidden": 1024}),
    "wang2016-cca": Changes({"dim": 128}, _FISHER),
    "wang2016-cca-mean": Changes({"dim": 128}, _MEAN),
    **{
        f"wang2016-cca-{mixtures}": Changes({"dim": 128}, _fisher(mixtures))
        for mixtures in ("gmm", "lmm", "gmm-hglmm")
    },
    "wang2016-cca-gong": Changes({"dim": 128}, _FISHER),
    "wang2016-phrases-cca": Changes({"dim": 128}, _PHRASES),
    **{f"wang2016-phrases-{model}": Changes(_REGIONS, _PHRASES) for model in "abcd"},
    **{f"wang2016-phrases-{model}-mined": Changes(_REGIONS_MINED, _PHRASES) for model in "abcd"},
    "dong2018-w2vv-bow": Changes(_W2VV),
    "dong2018-w2vv-word2vec": Changes(_W2VV, _W2V_MEAN),
    "dong2018-w2vv-word2vec-2-layers": Changes(_W2VV, _W2V_MEAN),
    "dong2018-w2vv-word2vec-4-layers": Changes(_W2VV, _W2V_MEAN),
    "dong2018-w2vv-gru": Changes(_W2VV_GRU, word_vectors=_GLOVE),
    "dong2018-w2vv-multiscale": Changes(_W2VV_GRU, _W2V_ALL, _GLOVE),
    "dong2018-video-bow": Changes({**_W2VV, **_CLIPS}),
    **dict.fromkeys(
        ("dong2018-video-word2vec", "dong2018-video-word2vec-sound"),
        Changes({**_W2VV, **_CLIPS}, _W2V_MEAN),
    ),
    "dong2018-video-gru": Changes({**_W2VV_GRU, **_CLIPS}, word_vectors=_GLOVE),
    **dict.fromkeys(
        ("dong2018-video-multiscale", "dong2018-video-multiscale-sound"),
        Changes({**_W2VV_GRU, **_CLIPS}, _W2V_ALL, _GLOVE),
    ),
    "kiros2014-lstm": Changes(_KIROS, word_vectors=_OWN),
    # The sum of the words' vectors is a linear map of their counts.
    "kiros2014-linear": Changes(_BAG, _COUNTS),
    "kiros2014-devise": Changes({**_KIROS, "dim": 100}, _OWN_WORDS, _OWN),
    "kiros2014-gru": Changes(_VSEPP),
    "vendrov2016-order": Changes({**_GRU, "epochs": 60}),
    "vendrov2016-symmetric": Changes({**_GRU, "epochs": 60}),
    "yan2019-transformer-basic": Changes(_YAN, _YAN_CAPTIONS, _GLOVE),
    "yan2019-transformer-basic-max": Changes(_YAN, _YAN_CAPTIONS, _GLOVE),
    "yan2019-transformer-pooling": Changes(_YAN, _YAN_CAPTIONS, _GLOVE),
    "yan2019-transformer-cross-attention": Changes(_YAN, _YAN_CAPTIONS, _GLOVE),
    "vsepp": Changes({**_VSEPP, "mean_hinge_epochs": 2}),
    "vsepp-finetuned": Changes({**_VSEPP, **_TUNED}, finetuning=_TUNED_NETWORK),
    "vse0": Changes(_VSEPP),
    **dict.fromkeys(
        ("scan-t2i-avg", "scan-t2i-lse", "scan-i2t-avg", "scan-i2t-lse"), Changes(_SCAN)
    ),
    **{
        f"{name}-{head}": Changes(captions=_COUNTS_AND_FISHER)
        for name in ("ours", "ours-lites", "ours-lites-10crop")
        for head in ("cca", "linear")
    },
    "ours-gru": Changes({"dim": 512, "word_dim": 50}, word_vectors=_GLOVE),
    "ours-finetuned": Changes(
        captions=_COUNTS_AND_FISHER, finetuning={"first_layer": _TUNED_NETWORK["first_layer"]}
    ),
}
"""Name of a preset -> what differs from it; a preset without an entry changes its images alone."""

_TINY_REGIONS = {"hidden": 256, "dim": 64, "batch_size": 300}
_TINY_VSEPP = {"dim": 128, "word_dim": 50}

TINY: dict[str, Mapping[str, Any]] = {
    **{f"wang2016-phrases-{model}": {**_TINY_REGIONS, "epochs": 16} for model in "abcd"},
    **{f"wang2016-phrases-{model}-mined": _TINY_REGIONS for model in "abcd"},
    "wang2016-nonlinear-bidirectional-structure": {
        "hidden": 512, "dim": 128, "batch_size": 500, "lr_decay_every": 10, "epochs": 16,
    },
    **{
        f"dong2018-{name}": {
            "hidden": 256, "hidden_size": 64, "learning_rate": 0.002, "epochs": 18,
        }
        for name in ("w2vv-multiscale", "video-multiscale", "video-multiscale-sound")
    },
    "kiros2014-linear": {"learning_rate": 0.002, "epochs": 14},
    "yan2019-transformer-pooling": {
        "dim": 32, "caption_layers": 1, "batch_size": 32, "learning_rate": 0.002,
        "lr_milestones": (7, 9), "mean_hinge_epochs": 3, "epochs": 14,
    },
    "vsepp": {
        **_TINY_VSEPP, "learning_rate": 0.01, "lr_decay": 0.7, "lr_decay_every": 1,
        "mean_hinge_epochs": 3, "epochs": 12,
    },
    "vsepp-finetuned": _TINY_VSEPP,
    "ours-gru": {"dim": 128, "learning_rate": 0.004, "epochs": 11},
}  # fmt: skip
"""Name of a preset -> settings over those of `SMALL`."""


def resolve_experiment(
    name: str,
    *,
    preset: str | None = None,
    head: str | None = None,
    size: Size = "small",
    images: str | None = None,
    captions: CaptionFeatures | None = None,
    settings: Mapping[str, Any] | None = None,
    word_vectors: str | None = None,
    average_captions: bool | None = None,
    finetuning: Mapping[str, Any] | None = None,
) -> Experiment:
    """Return an experiment: a preset at a size, and what differs from it.

    Parameters
    ----------
    name : of the experiment.
    preset : the published system that it follows; None: the one of the experiment's own name.
    head : in place of a preset, a head with its own defaults; then `images` and `captions` are
        needed.
    size : "paper", the values of the preset, "small", what `SMALL` makes of them, or "tiny", what
        `TINY` makes of those.
    images, captions, word_vectors, average_captions : in place of the preset's.
    settings : of the head, over those of the preset.
    finetuning : of `pipeline.heads.head_types.Finetuning`, over those of the preset.

    Raises
    ------
    HeadError
        No such preset, head or setting, both a preset and a head, or a head without features.
    """
    settings, finetuning = settings or {}, finetuning or {}
    if head is None:
        preset = preset or name
        found = find_preset(preset)
        changes = Changes(word_vectors=found.word_vectors)
        if size != "paper":
            changes = SMALL.get(preset, changes)
            kept = found.images if {*":+"} & {*found.images} else POOLED_IMAGES
            images = images or IMAGES.get(found.images, kept)
        head, images = found.head, images or found.images
        captions = captions or changes.captions or found.captions
        tiny = TINY.get(preset, {}) if size == "tiny" else {}
        settings = {**_differences(found.settings), **changes.settings, **tiny, **settings}
        word_vectors = word_vectors or changes.word_vectors
        if found.finetuning is not None:
            finetuning = {**_differences(found.finetuning), **changes.finetuning, **finetuning}
        average_captions = found.average_captions if average_captions is None else average_captions
    elif preset is not None:
        raise HeadError(
            f"experiment {name!r} has the preset {preset!r} and the head {head!r}; leave one out"
        )
    elif not (images and captions):
        raise HeadError(
            f"experiment {name!r} has a head and no preset, so it needs images and captions of "
            "its own"
        )
    checked = settings_from(head_kind(head).settings, settings, head)
    return Experiment(
        name=name,
        head=head,
        settings=_differences(checked),
        images=images,
        captions=captions,
        word_vectors=word_vectors,
        average_captions=bool(average_captions),
        preset=preset,
        finetuning=settings_from(Finetuning, finetuning, "of fine-tuning") if finetuning else None,
        of_phrases=preset is not None and find_preset(preset).of_phrases,
        goes_on_from=None if preset is None else find_preset(preset).goes_on_from,
    )


def _differences(settings: Any) -> dict[str, Any]:
    """Return the settings that differ from the defaults, as JSON values."""
    values = {f.name: (getattr(settings, f.name), f.default) for f in fields(settings)}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, (value, default) in values.items()
        if value != default
    }

"""Dong, Li & Snoek 2018: Word2VisualVec for images and for clips."""

from dataclasses import replace

from pipeline.heads.architectures.word2visualvec import Word2VisualVecSettings
from pipeline.heads.presets.preset import (
    GLOVE_50,
    OWN_VECTORS,
    POOLED_IMAGES,
    Changes,
    Preset,
    features,
    with_settings,
)

_FLICKR = "word2vec-flickr-500d"
_SMALL = {"hidden": 512, "epochs": 40, "learning_rate": 0.001}
_SMALL_GRU = {**_SMALL, "word_dim": 50, "hidden_size": 256}

_BOW = Preset(
    "word2visualvec",
    Word2VisualVecSettings(),
    "resnet152-pool-10crop",
    features("bow"),
    source="Dong, Li & Snoek 2018, sections III and IV-A, and the published program",
    leaves_open="batch size, dropout, clipping and schedule are those of the program",
    small=Changes(_SMALL),
)
_WORD2VEC = replace(
    _BOW,
    captions=features("mean-w2vv-flickr-500d", "mean-w2vv", vectors=_FLICKR),
    small=Changes(_SMALL, features("mean-w2vv", vectors=OWN_VECTORS)),
)
_GRU = replace(
    _BOW,
    captions=features("token-ids-w2vv"),
    word_vectors=_FLICKR,
    small=Changes(_SMALL_GRU, word_vectors=GLOVE_50),
)
_ALL = "bow+mean-w2vv+token-ids-w2vv"
_MULTISCALE = replace(
    _BOW,
    captions=features("w2vv-multiscale-flickr-500d", _ALL, vectors=_FLICKR),
    word_vectors=_FLICKR,
    small=Changes(_SMALL_GRU, features("w2vv-multiscale", _ALL, vectors=OWN_VECTORS), GLOVE_50),
    tiny={"hidden": 256, "hidden_size": 64, "learning_rate": 0.002, "epochs": 18},
)
_DEPTH = replace(_WORD2VEC, source='Dong, Li & Snoek 2018, section IV-A, "How deep?"')

_OTHER_SIMILARITIES = "Dong, Li & Snoek 2018, section III-C: alternative similarities"


def _of_clips(preset: Preset) -> Preset:
    """Return Word2VisualVec with visual clip features as the target."""
    return replace(
        preset,
        images="googlenet-pool",
        source="Dong, Li & Snoek 2018, section III-D and table III",
        leaves_open="GoogLeNet is that of ImageNet-1k, the paper also uses one of a shuffled "
        f"ImageNet-22k; one frame every half second; {preset.leaves_open}",
        of_clips=True,
        small=replace(
            preset.small,
            settings={**preset.small.settings, "epochs": 12, "learning_rate": 0.0005},
        ),
    )


def _with_sound(preset: Preset) -> Preset:
    """Return Word2VisualVec with visual and audio clip features as the target."""
    seen = _of_clips(preset)
    return replace(
        seen,
        images=f"{seen.images}+mfcc-bow-1024",
        source="Dong, Li & Snoek 2018, sections III-D and IV-D",
        leaves_open=seen.leaves_open.replace(
            "half second",
            "half second; the bag of MFCC is mfcc-bow-1024; both parts are L2-normalised",
        ),
        small=replace(seen.small, images=f"{POOLED_IMAGES}+mfcc-bow-1024"),
    )


PRESETS = {
    "dong2018-w2vv-bow": _BOW,
    "dong2018-w2vv-word2vec": _WORD2VEC,
    "dong2018-w2vv-word2vec-2-layers": with_settings(_DEPTH, layers=2),
    "dong2018-w2vv-word2vec-4-layers": with_settings(_DEPTH, layers=4),
    "dong2018-w2vv-word2vec-ranking": replace(
        with_settings(_WORD2VEC, loss="sum_of_hinges"),
        source="Dong, Li & Snoek 2018, section III-B: marginal ranking loss",
        leaves_open=f"margin 0.2; {_WORD2VEC.leaves_open}",
    ),
    "dong2018-w2vv-word2vec-dot": replace(
        with_settings(_WORD2VEC, similarity="dot"), source=_OTHER_SIMILARITIES
    ),
    "dong2018-w2vv-word2vec-euclidean": replace(
        with_settings(_WORD2VEC, similarity="euclidean"), source=_OTHER_SIMILARITIES
    ),
    "dong2018-w2vv-gru": _GRU,
    "dong2018-w2vv-multiscale": _MULTISCALE,
    "dong2018-w2vv-multiscale-map": replace(
        with_settings(_MULTISCALE, selection="map"),
        source="Dong, Li & Snoek 2018, section III-B, and the published program: the epoch is "
        "selected, and the learning rate halved, by mean average precision of image queries",
    ),
    "dong2018-video-bow": _of_clips(_BOW),
    "dong2018-video-word2vec": _of_clips(_WORD2VEC),
    "dong2018-video-gru": _of_clips(_GRU),
    "dong2018-video-multiscale": _of_clips(_MULTISCALE),
    "dong2018-video-word2vec-sound": _with_sound(_WORD2VEC),
    "dong2018-video-multiscale-sound": _with_sound(_MULTISCALE),
}

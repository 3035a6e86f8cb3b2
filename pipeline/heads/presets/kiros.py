"""Kiros, Salakhutdinov & Zemel 2014 and their later program, and Vendrov et al. 2016 after it."""

from dataclasses import replace

from pipeline.heads.architectures.vse import VseSettings
from pipeline.heads.presets.faghri import SMALL as SMALL_VSEPP
from pipeline.heads.presets.preset import (
    GOOGLENEWS,
    KIROS_TOKEN_IDS,
    OWN_VECTORS,
    SMALL_GRU,
    Changes,
    Preset,
    features,
    with_settings,
)

_LSTM = Preset(
    "vse",
    VseSettings(
        cell="peephole_lstm", dim=300, train_words=False, similarity="cosine", l2_normalise="both",
        loss="sampled_contrast", margin=0.2, optimiser="sgd", learning_rate=1.0, lr_decay=0.9,
        batch_size=40,
    ),
    "vgg19-kiros-fc7",
    KIROS_TOKEN_IDS,
    source="Kiros, Salakhutdinov & Zemel 2014, sections 2.1, 2.2 and 3.1; batches of Flickr8K",
    leaves_open="decay 0.9 an epoch; 10 contrastive terms, of the batch and not of the training "
    "set; 50 epochs; peepholes are diagonal, as in Graves 2013; an end mark after the words, as in "
    "their later program; words without a vector are random",
    word_vectors=GOOGLENEWS,
    small=Changes(
        # Without clipping one seed of three stays at chance.
        {"word_dim": 100, "image_scaling": "standardised", "clip": 20.0, "epochs": 14},
        word_vectors=OWN_VECTORS,
    ),
)  # fmt: skip
_DEVISE = replace(
    with_settings(_LSTM, cell="none"),
    captions=features("token-ids-words-googlenews-300d", "token-ids-words", vectors=GOOGLENEWS),
    source="Kiros, Salakhutdinov & Zemel 2014, section 3.1: their baseline DeViSE",
    leaves_open="the sum of the words' vectors, there the mean, which has the same direction; "
    "words, rate, terms and epochs as in kiros2014-lstm, whose objective theirs matches",
    small=Changes(
        {**_LSTM.small.settings, "dim": 100},
        features("token-ids-words", vectors=OWN_VECTORS),
        OWN_VECTORS,
    ),
)
_SECTION_4 = "Kiros, Salakhutdinov & Zemel 2014, section 4, which plans it"
_PROGRAM_OPEN = "words of the training captions alone, there those of validation, too"
_ORDER = Preset(
    "vse",
    VseSettings(
        similarity="order", l2_normalise="both", absolute=True, margin=0.05, epoch="images",
        clip=2.0, clip_each=True, epochs=100,
    ),
    "vgg19-order-fc7-10crop",
    KIROS_TOKEN_IDS,
    source="Vendrov et al. 2016, section 4, and the published program",
    leaves_open=_PROGRAM_OPEN,
    small=Changes({**SMALL_GRU, "epochs": 60}),
)  # fmt: skip

PRESETS = {
    "kiros2014-lstm": _LSTM,
    "kiros2014-lstm-whole-peepholes": replace(
        with_settings(_LSTM, cell="whole_peephole_lstm"),
        source="Kiros, Salakhutdinov & Zemel 2014, eq. (1) to (5) as they are printed",
        leaves_open="as kiros2014-lstm, without its remark on peepholes",
    ),
    "kiros2014-lstm-training-contrast": replace(
        with_settings(_LSTM, loss="training_contrast"),
        source="Kiros, Salakhutdinov & Zemel 2014, section 2.2: terms of the training set",
        leaves_open="as kiros2014-lstm, without its remark on contrastive terms; a draw gives the "
        "contrastive sentence, and by its image the contrastive image",
        slow=True,
    ),
    "kiros2014-lstm-deep": replace(
        with_settings(_LSTM, cell="lstm", layers=2),
        source=_SECTION_4,
        leaves_open="two layers, without peepholes; otherwise as kiros2014-lstm",
    ),
    "kiros2014-lstm-bidirectional": replace(
        with_settings(_LSTM, cell="lstm", bidirectional=True),
        source=_SECTION_4,
        leaves_open="half of the state for each direction, without peepholes; otherwise as "
        "kiros2014-lstm",
    ),
    "kiros2014-linear": replace(
        with_settings(_DEVISE, train_words=True),
        source="Kiros, Salakhutdinov & Zemel 2014, section 3.2: the sum of the words' vectors",
        leaves_open="whether words are trained: they are, since otherwise it is kiros2014-devise",
        small=Changes(
            # With Adam; the paper's plain gradient descent is at kiros2014-lstm.
            {
                "optimiser": "adam", "learning_rate": 0.001, "batch_size": 128, "lr_decay": 0.85,
                "epochs": 8, "image_scaling": "standardised",
            },
            # The sum of the words' vectors is a linear map of their counts.
            features("bow-vsepp", "bow", tokenizer="vsepp"),
        ),
        tiny={"learning_rate": 0.002, "epochs": 14},
    ),
    "kiros2014-devise": _DEVISE,
    "kiros2014-devise-trained": replace(
        with_settings(_DEVISE, train_words=True),
        source="Kiros, Salakhutdinov & Zemel 2014, section 3.2: their linear sentence encoder",
        leaves_open="the sum of the words' vectors, which start from and differ from those of "
        "kiros2014-devise by training alone; words, rate, terms and epochs as in kiros2014-lstm",
    ),
    "kiros2014-gru": replace(
        _LSTM,
        settings=VseSettings(
            similarity="cosine", l2_normalise="captions", margin=0.2, learning_rate=0.0002,
            clip=2.0, epochs=15,
        ),
        word_vectors=None,
        source="the program that Kiros et al. published later, visual-semantic-embedding",
        leaves_open=_PROGRAM_OPEN,
        small=Changes(SMALL_VSEPP),
    ),
    "vendrov2016-order": _ORDER,
    "vendrov2016-symmetric": with_settings(
        _ORDER, similarity="cosine", absolute=False, margin=0.2
    ),
}  # fmt: skip

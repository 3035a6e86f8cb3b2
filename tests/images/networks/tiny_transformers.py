"""Small random dual encoders of transformers, saved with tokenizer and image processor."""

from pathlib import Path
from typing import Any, NamedTuple

import torch

WORDS = ["a", "dog", "runs", "over", "the", "grassy", "fields", "in", "park", "red", "ball"]
_MARKS = ["<pad>", "<unknown>", "<start>", *WORDS, "<end>"]  # the end mark has the highest id
_SIDES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
_TOWER = {**_SIDES, "num_attention_heads": 2}
_IMAGE = {**_TOWER, "image_size": 64, "patch_size": 16}
_TEXT = {**_TOWER, "vocab_size": len(_MARKS), "max_position_embeddings": 12}
_ENDS = {"bos_token_id": 2, "eos_token_id": len(_MARKS) - 1, "pad_token_id": 0}
_SQUARE = {"size": {"height": 64, "width": 64}}
_SHORTER = {"size": {"shortest_edge": 72}, "crop_size": {"height": 64, "width": 64}}


class Dual(NamedTuple):
    """A kind of model, as in the names of the library's classes."""

    kind: str
    image_processor: str
    settings: dict[str, Any]  # of the image processor
    config: dict[str, Any]
    start: str  # mark in front of a caption
    inputs: tuple[str, ...]  # what the tokenizer returns
    padding: bool | str  # of the library's processor, or its documentation


_MASKED = ("input_ids", "attention_mask")
_CLIP = {"vision_config": _IMAGE, "projection_dim": 24}
DUAL = {
    "clip": Dual(
        "CLIP", "CLIPImageProcessor", _SHORTER, {"text_config": {**_TEXT, **_ENDS}, **_CLIP},
        "<start>", _MASKED, True,
    ),
    # Files of the first releases: the row is that of the highest id.
    "clip-old": Dual(
        "CLIP", "CLIPImageProcessor", _SHORTER,
        {"text_config": {**_TEXT, **_ENDS, "eos_token_id": 2}, **_CLIP}, "<start>", _MASKED, True,
    ),
    "siglip": Dual(
        "Siglip", "SiglipImageProcessor", _SQUARE,
        {"text_config": {**_TEXT, **_ENDS}, "vision_config": _IMAGE}, "", ("input_ids",),
        "max_length",
    ),
    "siglip-masked": Dual(
        "Siglip", "SiglipImageProcessor", _SQUARE,
        {"text_config": {**_TEXT, **_ENDS}, "vision_config": _IMAGE}, "", _MASKED, "max_length",
    ),
    "siglip2": Dual(
        "Siglip2", "Siglip2ImageProcessor", {},
        {
            "text_config": {**_TEXT, **_ENDS, "max_position_embeddings": 70},
            "vision_config": {**_TOWER, "num_patches": 16, "patch_size": 16},
        }, "", ("input_ids",), "max_length",
    ),
    "chinese-clip": Dual(
        "ChineseCLIP", "ChineseCLIPImageProcessor", _SHORTER, {"text_config": _TEXT, **_CLIP},
        "<start>", (*_MASKED, "token_type_ids"), True,
    ),
}  # fmt: skip


def save_dual(folder: Path, name: str) -> Path:
    """Save a model to a folder, unless it is there, and return the folder."""
    import tokenizers
    import transformers

    if folder.is_dir():
        return folder
    dual = DUAL[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{dual.kind}Config")(**dual.config)
    net = getattr(transformers, f"{dual.kind}Model")(config)
    for parameter in net.parameters():
        # The library's own are too small for differences to be seen.
        torch.nn.init.normal_(parameter, std=0.2)
    net.save_pretrained(folder)
    inner = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: at for at, word in enumerate(_MARKS)}, "<unknown>")
    )
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    marks = [(mark, _MARKS.index(mark)) for mark in ("<start>", "<end>")]
    inner.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{dual.start} $A <end>".strip(), special_tokens=marks
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", unk_token="<unknown>", bos_token="<start>",
        eos_token="<end>", model_max_length=net.config.text_config.max_position_embeddings,
        model_input_names=[*dual.inputs],
    )  # fmt: skip
    images = getattr(transformers, dual.image_processor)(**dual.settings)
    processor = getattr(transformers, f"{dual.kind}Processor")(images, tokenizer)
    processor.save_pretrained(folder)
    # As in the repositories on the hub; the processor's own file has its settings too.
    images.save_pretrained(folder)
    return folder

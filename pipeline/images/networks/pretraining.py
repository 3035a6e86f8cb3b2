"""Training datasets of published weights, parsed from their tags."""

import re

# Parts of the tags of timm and open_clip. ImageNet-21k and -22k are the same up to some names.
_PIECES = {
    "in1k": "ImageNet-1k",
    "in12k": "ImageNet-12k",
    "in21k|in22k|inw21k": "ImageNet-21k",
    "laion400m": "LAION-400M",
    "laion2b": "LAION-2B",
    "laion5b": "LAION-5B",
    "laiona|laion_aesthetic": "LAION-Aesthetics",
    "merged2b": "LAION-2B and COYO-700M",
    "datacomp[a-z0-9]*": "DataComp",
    "commonpool": "CommonPool",
    "openai": "WebImageText",
    "webli": "WebLI",
    "metaclip|metaclip2": "MetaCLIP",
    "dfn2b|dfn5b|dfndr2b": "Data Filtering Networks",
    "cc12m": "Conceptual 12M",
    "yfcc15m": "YFCC-15M",
    "yfcc100m": "YFCC-100M",
    "ig1b": "Instagram-1B",
    "jft": "JFT-300M",
    "lvd142m": "LVD-142M",
    "lvd1689m": "LVD-1689M",
    "sa1b": "SA-1B",
    "mscoco": "COCO captions",
}


def datasets_in_tag(tag: str) -> tuple[str, ...]:
    """Return the datasets in a tag such as "laion2b_ft_in1k"; () if there are none."""
    names = [
        name
        for piece, name in _PIECES.items()
        if re.search(rf"(^|_)({piece})(_|$)", tag, re.IGNORECASE)
    ]
    return tuple(names)

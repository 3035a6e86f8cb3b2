"""Options that were renamed, so that each name has one meaning; the old names are refused.

`--captions` is a file of captions, `--images` is images, `--regions` is a folder of proposals.
"""

RENAMED: dict[str, dict[str, str]] = {
    "scenes": {"--images": "--num-images"},
    "regions": {"--regions": "--table"},
    "train": {"--images": "--image-features", "--captions": "--caption-features"},
    "embed": {"--images": "--image-features", "--captions": "--caption-features"},
    "localize": {"--regions": "--region-features"},
    "report": {"--regions": "--task localization", "--captions": "--task captioning"},
    "search": {"--regions": "--localize"},
    "serve": {"--regions": "--localize", "--captions": "--language-model"},
}
"""Name of a command to its old options, each with the new one."""

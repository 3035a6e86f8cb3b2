"""The vocabulary of captions: each list has synonyms for one fact."""

SHAPE_WORDS: dict[str, tuple[tuple[str, str], ...]] = {
    "circle": (("circle", "circles"), ("disc", "discs"), ("ball", "balls")),
    "square": (("square", "squares"), ("box", "boxes")),
    "triangle": (("triangle", "triangles"),),
    "star": (("star", "stars"),),
    "ring": (("ring", "rings"), ("hoop", "hoops")),
    "cross": (("cross", "crosses"), ("plus sign", "plus signs")),
    "heart": (("heart", "hearts"),),
    "diamond": (("diamond", "diamonds"),),
    "hexagon": (("hexagon", "hexagons"),),
    "crescent": (("crescent", "crescents"), ("moon", "moons")),
    "flower": (("flower", "flowers"), ("blossom", "blossoms")),
    "fish": (("fish", "fish"),),
}
"""Shape to (singular, plural) of each of its names."""

COLOUR_WORDS: dict[str, tuple[str, ...]] = {
    "red": ("red", "red", "scarlet"),
    "orange": ("orange",),
    "yellow": ("yellow",),
    "green": ("green",),
    "blue": ("blue",),
    "purple": ("purple", "purple", "violet"),
    "pink": ("pink",),
    "brown": ("brown",),
    "black": ("black",),
    "white": ("white",),
}
TEXTURE_WORDS: dict[str, tuple[str, ...]] = {
    "plain": ("plain", "solid"),
    "striped": ("striped",),
    "dotted": ("dotted", "spotted"),
    "checked": ("checked", "chequered"),
}
TEXTURE_TAILS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "striped": ("with stripes",),
    "dotted": ("with dots", "with spots"),
    "checked": ("with a checked pattern",),
}
SIZE_WORDS: dict[str, tuple[str, ...]] = {
    "small": ("small", "little", "tiny"),
    "medium": (),
    "large": ("large", "big"),
}
COUNT_WORDS: dict[int, tuple[str, ...]] = {
    1: ("a", "a", "a", "a", "one", "a single"),
    2: ("two", "two", "a pair of", "a couple of"),
    3: ("three", "three", "a group of three", "a few"),
    4: ("four", "four", "a group of four", "several"),
}
"""Number to the words before the noun; "a" becomes "an" where needed."""

SETTING_WORDS: dict[str, tuple[tuple[str, str], ...]] = {
    "white": (
        ("on a white background", "a white background"),
        ("on white paper", "a sheet of white paper"),
    ),
    "black": (("on a black background", "a black background"),),
    "grey": (
        ("on a grey background", "a grey background"),
        ("against a grey wall", "a grey wall"),
    ),
    "pink": (
        ("on a pale pink background", "a pale pink background"),
        ("against a pink wall", "a pink wall"),
    ),
    "light blue": (("on a light blue background", "a light blue background"),),
    "sunset": (
        ("at sunset", "a colourful sunset"),
        ("against the evening sky", "an evening sky"),
    ),
    "grass": (("on the grass", "green grass"), ("on a lawn", "a green lawn")),
    "sky": (
        ("in the sky", "a cloudy sky"),
        ("against a blue sky with clouds", "a blue sky full of clouds"),
    ),
    "field": (
        ("in front of a green field and a blue sky", "a green field under a blue sky"),
        ("in front of a meadow", "a meadow under a blue sky"),
    ),
    "sand": (("on the sand", "yellow sand"), ("on a sandy beach", "a sandy beach")),
    "water": (("on the water", "blue water"), ("in the sea", "the open sea")),
    "night": (("at night", "a dark night"), ("against the night sky", "the night sky")),
    "brick": (
        ("on a brick wall", "a brick wall"),
        ("in front of a brick wall", "a red brick wall"),
    ),
    "wood": (
        ("on a wooden floor", "a wooden floor"),
        ("on wooden boards", "brown wooden boards"),
    ),
    "snow": (("in the snow", "white snow"), ("on snowy ground", "snowy ground")),
    "tiles": (("on a tiled floor", "a tiled floor"), ("on grey tiles", "grey tiles")),
}
"""Setting to (where the objects are, what is behind them)."""

NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight")
LEFT_OF = ("to the left of", "left of", "on the left of")
RIGHT_OF = ("to the right of", "right of", "on the right of")
ABOVE = ("above", "over", "higher than")
BELOW = ("below", "under", "beneath")
LEFT = ("on the left", "on the left side")
RIGHT = ("on the right", "on the right side")
TOP = ("at the top", "in the upper half")
BOTTOM = ("at the bottom", "in the lower half")
PLACES: dict[str, tuple[str, ...]] = {
    "middle": ("in the middle", "in the centre", "at the centre"),
    "top left": ("in the top left corner", "in the upper left", "at the top on the left"),
    "top right": ("in the top right corner", "in the upper right", "at the top on the right"),
    "bottom left": ("in the bottom left corner", "in the lower left", "at the bottom on the left"),
    "bottom right": (
        "in the bottom right corner",
        "in the lower right",
        "at the bottom on the right",
    ),
    "row": ("in a row", "side by side", "next to each other"),
    "column": ("in a column", "one above the other", "in a vertical line"),
    "scattered": ("spread out", "scattered around"),
}

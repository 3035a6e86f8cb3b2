"""Treebank words against nltk's own tokenizer."""

import random
import subprocess
import sys

import pytest
from nltk.tokenize import NLTKWordTokenizer

from pipeline.text.tokenizers.treebank import nltk_words, treebank_words
from tests.project import SHARED

NLTK = NLTKWordTokenizer().tokenize
FLICKR8K = SHARED / "data/flickr8k/annotations/Flickr8k.token.txt"
# What the rules are about, pieces of words, and characters that `re` and `regex` see differently.
PIECES = [
    *"abcdnst12.,:;-'\"`?!@#$%&*()[]{}<>é_",
    *" \t\n\u00a0\u2003\x1c\x85",
    *"«»“”‘’„\u2012\u2013\u2014\u2015",
    *"\u0301\u093f\u0939\u0661ſİß犬",
    *("``", "''", "--", "...", " '", "' ", ". "),
    *("cannot", "d'ye", "gimme", "gonna", "gotta", "lemme", "more'n", "wanna", " 'tis", " 'twas"),
    *("'s", "'S", "'ll", "'re", "'ve", "n't", "N'T", "'RE", "dog", "Can't", "3.5", "1,000"),
]


def test_odd_texts() -> None:
    rng = random.Random(0)
    for _ in range(5000):
        text = "".join(rng.choices(PIECES, k=rng.randint(0, 14)))
        assert nltk_words(text) == NLTK(text), ascii(text)


def test_letters_marks_and_spaces_of_many_scripts() -> None:
    for first in range(0, 0x3400, 1024):
        for around in ("a{}'b", " {}"):
            text = " ".join(around.format(chr(c)) for c in range(first, first + 1024))
            assert nltk_words(text) == NLTK(text), hex(first)


def test_plain_captions_need_no_rules() -> None:
    rng = random.Random(1)
    pieces = [*"abc12.,-'é", " ", " ", "gonna", "cannot", "na", "dog", "\t", "\u00a0", "--"]
    for _ in range(3000):
        text = "".join(rng.choices(pieces, k=rng.randint(0, 14)))
        if ". " not in text and ".\t" not in text and ".\u00a0" not in text:
            assert treebank_words(text) == NLTK(text), ascii(text)


def test_captions_of_flickr8k() -> None:
    if not FLICKR8K.is_file():
        pytest.skip("needs Flickr8k's captions in ../shared")
    captions = [line.split("\t")[1] for line in FLICKR8K.read_text().splitlines()[::5]]
    assert len(captions) >= 6_000  # one of each image
    for text in captions:
        words = NLTK(text)
        assert nltk_words(text) == words
        # A stop between two words is ours to set apart.
        if ". " not in text.rstrip():
            assert treebank_words(text) == words


def test_nltk_is_loaded_in_part_and_whole_afterwards() -> None:
    """In a process of its own: nothing of nltk or scipy stays, and `import nltk` is as ever."""
    code = (
        "import sys\n"
        "from pipeline.text.tokenizers.treebank import nltk_words\n"
        'print(nltk_words("a dog\'s ball"))\n'
        "print([m for m in sys.modules if m.partition('.')[0] in ('nltk', 'scipy')])\n"
        "import nltk\n"
        "print(nltk.tokenize.NLTKWordTokenizer().tokenize(\"isn't\"), nltk.__version__ != '')\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == [
        "['a', 'dog', \"'s\", 'ball']",
        "[]",
        "['is', \"n't\"] True",
    ]

"""The tokenizer: what splits, what is dropped, what Unicode form comes out."""

import pytest

from pipeline.text.tokens import tokenize


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("A dog runs, fast!", ["a", "dog", "runs", "fast"]),
        ("A dog. Two cats. A BIRD.", ["a", "dog", "two", "cats", "a", "bird"]),
        ("the u.s. army", ["the", "u.s.", "army"]),
        ("It doesn't move", ["it", "does", "n't", "move"]),
        ("a dog's well-worn toy", ["a", "dog", "'s", "well-worn", "toy"]),
        ('he says "hi" (2 times)', ["he", "says", "hi", "2", "times"]),
        ("cafe\u0301", ["café"]),
        ("a\u00a0dog\tand\u2003a cat", ["a", "dog", "and", "a", "cat"]),
        ("dog dog", ["dog", "dog"]),
        ("... !? -- ``", []),
        ("", []),
        ("犬が走る", ["犬が走る"]),
    ],
)
def test_tokens(text: str, tokens: list[str]) -> None:
    assert tokenize(text) == tokens

"""Stop word lists: English function words, which describe little of an image's content."""

from pipeline.store.hashing import sha256_of_json

_ENGLISH = """
a about above after again against all also although am among an and another any are as at be
because been before being below between both but by can cannot could d did do does doing don down
during each either else etc every few for from further had has have having he her here hers
herself him himself his how i if in into is it its itself just ll m may me might mine more most
must my myself n't neither no nor not now of off on once one's only onto or other others ought our
ours ourselves out over own per quite rather re s same shall she should since so some such t than
that the their theirs them themselves then there these they this those though through thus to too
toward towards under until up upon us ve very via was we were what whatever when where whether
which while who whom whose why will with within without would yet you your yours yourself
yourselves 'd 'll 'm 're 's 've
"""

STOP_WORDS: dict[str, frozenset[str]] = {"english-function": frozenset(_ENGLISH.split())}
"""The words of each list, lower case, by name.

"english-function" is our own compilation: articles, pronouns, auxiliary verbs, conjunctions,
prepositions without a place of their own, and the pieces into which tokenizers split contractions
("n't", "'s", "s"). Words of place such as "behind" and "near" are not included.
"""


def stop_words_sha256(name: str) -> str:
    """Return the SHA-256 of the canonical JSON of a sorted list."""
    return sha256_of_json(sorted(STOP_WORDS[name]))

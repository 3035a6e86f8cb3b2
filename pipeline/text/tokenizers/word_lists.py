"""Word lists of the tokenizers, our own compilations: stop words, and irregular lemmas."""

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
"""The lower-case words of each list, by name.

"english-function" has articles, pronouns, auxiliary verbs, conjunctions, prepositions without a
place of their own, and the pieces into which tokenizers split contractions ("n't", "'s", "s").
Words of place such as "behind" and "near" are not included.
"""


def stop_words_sha256(name: str) -> str:
    """Return the SHA-256 of the canonical JSON of a sorted list."""
    return sha256_of_json(sorted(STOP_WORDS[name]))


_SAME = """
anything building ceiling clothes clothing evening everything goggles headphones jeans lens
morning news nothing pants people railing scissors series shorts sibling something species
stocking swimming-trunks tights trousers wedding
"""

_NOUNS = """
cacti cactus; children child; feet foot; geese goose; grandchildren grandchild; hooves hoof;
leaves leaf; mice mouse; oxen ox; schoolchildren schoolchild; skies sky; skis ski; taxis taxi;
teeth tooth; bikinis bikini; policewomen policewoman; axes axe; buses bus; gases gas;
pies pie; ties tie
"""

_VERBS = """
am be; are be; is be; was be; were be; been be; being be; has have; had have; having have;
does do; did do; done do; doing do; goes go; went go; gone go; going go; ate eat; eaten eat;
became become; began begin; begun begin; bent bend; bitten bite; blew blow; blown blow;
bought buy; broke break; broken break; brought bring; built build; came come; carried carry;
caught catch; chose choose; chosen choose; crept creep; drank drink; drawn draw; drew draw;
driven drive; drove drive; dug dig; dying die; dyed dye; dyeing dye; fallen fall; fed feed;
fell fall; flew fly; flies fly; flown fly; fought fight; found find; froze freeze; frozen freeze;
gave give; given give; grew grow; grown grow; held hold; hid hide; hidden hide; hung hang;
kept keep; knelt kneel; knew know; known know; laid lay; lain lie; leant lean; leapt leap; led lead;
lit light; lying lie; made make; met meet; paid pay; ran run; rang ring; ridden ride; risen rise;
rode ride; said say; sang sing; sat sit; seen see; shaken shake; shone shine; shook shake;
shown show; sitting sit; skiing ski; skied ski; slept sleep; slid slide; sold sell; sped speed;
spun spin; sprang spring; stood stand; stuck stick; struck strike; sung sing; swam swim;
swept sweep; swum swim; swung swing; taken take; taught teach; threw throw; thrown throw;
told tell; took take; torn tear; tying tie; won win; wore wear; worn wear; woven weave;
written write; wrote write
"""


def _pairs(table: str) -> dict[str, str]:
    return dict(map(str.split, table.split(";")))


IRREGULAR_WORDS: dict[str, str] = {
    **{word: word for word in _SAME.split()},
    **_pairs(_NOUNS),
    **_pairs(_VERBS),
}
"""Lemma of each word that suffix rules do not find.

Words that more often mean something else in a caption ("left", "felt", "saw", "shot", "rose",
"ground") are left out, and nouns such as "building" are their own lemmas.
"""

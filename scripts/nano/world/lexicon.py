"""The closed lexicon of the embedded world: all names, cities and things in its problems.

Invented names are built from syllables with a fixed seed: they are the same on every machine, and each is one token of
the embedded tokenizer.
"""

import random

FIRST_NAMES = (
    "Tom Anna Ben Mia Sam Lily Jack Emma Leo Nora Omar Ruth Ivan Sara Paul Jane Carl Dina Eric Fay "
    "Gus Hana Ian Joy Kim Luke Maya Noah Olga Pete Rosa Tina Uma Vera Walt Yara Zoe Alan Beth Cody"
).split()
FEMALE = frozenset(
    "Anna Mia Lily Emma Nora Ruth Sara Jane Dina Fay Hana Joy Kim Maya Olga Rosa Tina Uma Vera Yara Zoe Beth".split()
)
ITEMS = (
    "apples books pencils marbles stickers cookies coins cards shells stamps oranges toys balloons candles "
    "flowers cakes eggs bottles pens stones"
).split()
BOXES = "boxes bags baskets packs crates jars".split()
JOBS = "painter doctor teacher pilot baker lawyer singer chemist farmer poet sailor judge".split()
INSTRUMENTS = "violin piano guitar flute drums cello harp trumpet".split()
PRODUCTS = "cheese wine glass silk steel honey salt paper wool pottery".split()
#: kind of work -> (verb of its making, word for its maker)
WORKS = {
    "novel": ("written", "author"),
    "film": ("directed", "director"),
    "tower": ("designed", "architect"),
    "opera": ("composed", "composer"),
}
_SYLLABLES = (
    "ka lo mi ter ben dor va sil ra no qu en tar vel osh ul bri gan mor esk fal hu jor lin pra zu wex tol ald ery"
).split()


def _invented(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    names: list[str] = []
    while len(names) < count:
        name = "".join(draw.choice(_SYLLABLES) for _ in range(draw.choice((2, 2, 3)))).capitalize()
        if name not in names and name not in FIRST_NAMES:
            names.append(name)
    return names


_NAMES = _invented(270, seed=77)
SURNAMES = _NAMES[:60]
CITIES = _NAMES[60:140]
REGIONS = [name + ("ia" if i % 2 else "land") for i, name in enumerate(_NAMES[140:180])]
TITLES = _NAMES[180:260]


def pronoun(name: str) -> str:
    return "She" if name in FEMALE else "He"


def everything() -> list[str]:
    """List all words; each is one token."""
    made = [word for pair in WORKS.values() for word in pair] + list(WORKS)
    return [
        *FIRST_NAMES, *SURNAMES, *CITIES, *REGIONS, *TITLES, *ITEMS, *BOXES, *JOBS, *INSTRUMENTS, *PRODUCTS, *made,
    ]  # fmt: skip

"""How many time zones has each country? Keep what has no partner in the other table.

A line of countries.tsv has two columns: a code and a country. A line of zones.tsv has three: a
code, coordinates and a zone's name. TABs are between them. A line of output has a country and its
number of zones, which may be 0. If a code of zones.tsv is not in countries.tsv, write the code
instead of the country: "Japan"\t1
"""

from mapreduce.job import Job

SHOWN = ["countries.tsv", "zones.tsv"]
COUNTRY, ZONE = "A", "B"


def countries(*codes):
    return [f"{code}\tLand of {code}" for code in codes]


def zones(*codes):
    return [f"{code}\t+4230+00131\tEurope/City_{i}" for i, code in enumerate(codes)]


def inputs(random):
    """Codes in both tables and in one of them, once and several times; and random ones."""
    yield "one zone", countries("AD"), zones("AD")
    yield "several zones", countries("AD", "AR"), zones("AR", "AD", "AR", "AR")
    yield "a country without a zone", countries("BV", "AD"), zones("AD")
    yield "a zone without a country", countries("AD"), zones("AD", "ZZ")
    yield "zones without a country", countries("AD"), zones("ZZ", "YY", "ZZ")
    yield "no zones at all", countries("AD", "AR"), []
    yield "no countries at all", [], zones("AD", "AR")
    yield "a zone without a slash", countries("AD"), ["AD\t+0000+00000\tUTC"]
    yield "a country with a slash", ["HM\tHeard/McDonald"], zones("HM", "HM")
    yield "ten zones", countries("AD"), zones(*["AD"] * 10)
    yield "a country that sorts late", ["AD\tändorra"], zones("AD")
    yield "letters that are not English", ["AX\tÅland Islands", "CI\tCôte d'Ivoire"], zones("CI")
    codes = ["AD", "AE", "AF", "AG", "ZZ"]
    for n in range(5):
        tables = random.sample(codes, 3), random.choices(codes, k=6)
        yield f"random {n}", countries(*tables[0]), zones(*tables[1])


class Countries(Job):
    """Rows of both tables meet under the code. A tag says which is which, in any order."""

    def mapper(self, _, line):
        code, *rest = line.split("\t")
        yield code, (COUNTRY, rest[0]) if len(rest) == 1 else (ZONE, 1)

    def reducer(self, code, rows):
        country, zones = code, 0
        for tag, value in rows:
            if tag == COUNTRY:
                country = value
            else:
                zones += value
        yield country, zones

"""Make a table of cities and countries of `jobs/data/zones.tsv`.

Write the last part of the zone's name, a TAB, the country. Count zones without a city, and yield
nothing for them. A line of zones.tsv has a country, coordinates and a zone's name, with TABs
between. A zone without a city has no "/" in its name. A line of output is text, without quotation
marks (`OUTPUT_PROTOCOL = TextProtocol`): Tokyo\tJP
"""

from mapreduce.job import Job, TextProtocol

SHOWN = ["zones.tsv"]
# A right solution may have a reducer, and send what this one writes at once.
COST = float("inf")


def zone(country, name):
    return f"{country}\t+4230+00131\t{name}"


def inputs(random):
    """Names of one, two, three and four parts, and random ones."""
    yield "two parts", [zone("AD", "Europe/Andorra")]
    yield "three parts", [zone("AR", "America/Argentina/Buenos_Aires")]
    yield "four parts", [zone("XX", "Earth/America/Indiana/Knox")]
    yield "no city", [zone("ZZ", "UTC"), zone("AD", "Europe/Andorra")]
    yield "only zones without a city", [zone("ZZ", "UTC"), zone("ZZ", "GMT")]
    yield "a city of two countries", [zone("CY", "Asia/Nicosia"), zone("CY", "Europe/Nicosia")]
    yield "an empty country", [zone("", "Antarctica/Troll")]
    yield "dashes and digits", [zone("GW", "Africa/Porto-Novo"), zone("ZZ", "Etc/GMT+10")]
    yield "letters that are not English", [zone("BR", "America/São_Paulo")]
    names = ["UTC", "Asia/Tokyo", "America/Indiana/Knox", "America/Knox", "Europe/Zürich"]
    for n in range(5):
        yield f"random {n}", [zone(random.choice("AB"), random.choice(names)) for _ in range(8)]


class Cities(Job):
    """There is no reducer: what the mapper yields is the output."""

    OUTPUT_PROTOCOL = TextProtocol

    def mapper(self, _, line):
        country, _, zone, *_ = line.split("\t")
        if "/" in zone:
            yield zone.rpartition("/")[2], country
        else:
            self.increment_counter("zones", "without a city")

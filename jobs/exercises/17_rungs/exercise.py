"""Which trials of each search go on to the next rung?

Of all trials of a search that have a loss, the better half goes on: the half is rounded down, but
one trial goes on at least. Of equal losses the lower number is better. A line of trials.tsv has a
search, the number of a trial and its loss, with TABs between; a trial that diverged has the loss
`nan`, and does not count. A line of output has a search and the numbers of the trials that go on,
the best first. So of five trials two go on: "digits"\t[4, 1]
"""

from mapreduce.job import Job

SHOWN = ["trials.tsv"]


def trials(search, *losses):
    return [f"{search}\t{number}\t{loss}" for number, loss in enumerate(losses)]


def inputs(random):
    """Few, equal and failed trials, losses that texts put in another order, and random ones."""
    yield "one trial", trials("a", "0.5")
    yield "two trials", trials("a", "0.5", "0.25")
    yield "five trials", trials("a", "0.5", "0.4", "0.1", "0.2", "0.3")
    yield "six trials", trials("a", "0.5", "0.4", "0.1", "0.2", "0.3", "0.6")
    yield "equal losses", trials("a", *["0.5"] * 7)
    yield "two searches", trials("a", "3", "2", "1") + trials("b", "1", "2", "3", "4", "5", "6")
    yield "the first one diverged", trials("a", "nan", "2", "1", "3")
    yield "most diverged", trials("a", "nan", "nan", "2", "nan", "1", "nan", "nan")
    yield "all of one search diverged", trials("a", "nan", "nan") + trials("b", "1", "2")
    yield "exponents", trials("a", "9e-05", "1e+03", "0.1", "2", "1e-04", "30")
    yield "letters that are not English", trials("größer", "2", "1", "3")
    for n in range(5):
        losses = [random.choice([f"{random.uniform(0, 20):.3g}", "nan"]) for _ in range(14)]
        yield f"random {n}", trials("a", *losses[:9]) + trials("b", *losses[9:])


class Rungs(Job):
    """How many go on is known where all have met."""

    def mapper(self, _, line):
        search, trial, loss = line.split("\t")
        if loss != "nan":
            yield search, (float(loss), int(trial))

    def reducer(self, search, trials):
        ranked = sorted(trials)
        yield search, [trial for _, trial in ranked[: max(1, len(ranked) // 2)]]

"""What each rung computes, by a program of one process that reads its lines one after the other.

Written as one would write it without MapReduce: the oracle of the jobs' tests, and the other side
of the comparison in jobs/README.md. Each takes the lines of its input and yields pairs.
"""

import math
import re
import statistics
from collections import Counter, defaultdict, deque
from fractions import Fraction
from hashlib import blake2b
from heapq import nlargest
from itertools import combinations, pairwise

import numpy as np

WORD = re.compile(r"[\w']+")


def word_count(lines):
    counts = Counter()
    for line in lines:
        counts.update(WORD.findall(line.lower()))
    yield from counts.items()


word_count_combiner = word_count_vectorized = word_count


def grep(lines):
    for line in lines:
        if re.search("warrant", line):
            yield None, line


def sample(lines):
    for line in lines:
        digest = blake2b(line.encode(), digest_size=8, key=b"0").hexdigest()
        if int(digest, 16) < 0.3 * 2**64:
            yield None, line


def bad_records(lines):
    found = Counter()
    for line in lines:
        try:
            _, section, size, _ = line.split("\t")
            found["section", section] += int(size)
        except ValueError:
            found["bad", line] += 1
    yield from found.items()


def split_reader(lines):
    yield from Counter(len(line.encode()) for line in lines).items()


def sizes_by_section(lines):
    sizes = defaultdict(list)
    for line in lines:
        _, section, size, _ = line.split("\t")
        sizes[section].append(int(size))
    return sizes


def mean_variance(lines):
    for section, sizes in sizes_by_section(lines).items():
        exact = [Fraction(size) for size in sizes]
        mean, variance = statistics.mean(exact), statistics.pvariance(exact)
        yield section, {"mean": float(mean), "variance": float(variance)}


def exact_sum(lines):
    lengths = defaultdict(list)
    for line in lines:
        _, _, petal, _, species = line.split("\t")
        lengths[species].append(float(petal))
    for species, found in lengths.items():
        yield species, math.fsum(found)


def median(lines):
    for section, sizes in sizes_by_section(lines).items():
        yield section, float(statistics.median(sizes))


def distinct(lines):
    needed = {need for line in lines for need in line.split("\t")[3].split(",")}
    for need in needed - {""}:
        yield None, need


def top_k(lines):
    counts = dict(word_count(lines))
    for count, word in nlargest(5, ((count, word) for word, count in counts.items())):
        yield word, count


def secondary_sort(lines):
    sections = defaultdict(list)
    for line in lines:
        name, section, size, _ = line.split("\t")
        sections[section].append((int(size), name))
    for section, packages in sections.items():
        for rank, (size, name) in enumerate(sorted(packages), 1):
            yield section, [rank, name, size]


def reduce_join(lines):
    rows = [line.split("\t") for line in lines]
    sections = {row[0]: row[1] for row in rows if len(row) == 4}
    for name, *release in (row for row in rows if len(row) == 3):
        if name in sections:
            yield name, [sections[name], *release]


def salted_join(lines):
    rows = [line.split("\t") for line in lines]
    sections = {name: section for name, section, _, _ in rows}
    for name, _, _, needs in rows:
        for need in needs.split(","):
            if need in sections:
                yield name, [need, sections[need]]


def inverted_index(lines):
    index = defaultdict(lambda: defaultdict(list))
    for line in lines:
        name, text = line.split("\t")
        for position, word in enumerate(WORD.findall(text.lower())):
            index[word][name].append(position)
    for word, found in index.items():
        yield word, [[name, compressed(positions)] for name, positions in sorted(found.items())]


def compressed(positions):
    content = b""
    for before, position in zip([0, *positions], positions, strict=False):
        gap = position - before
        content += bytes([gap]) if gap < 128 else bytes([gap % 128 + 128, gap // 128])
    return content.hex()


def cooccurrence_pairs(lines):
    counts = Counter()
    for line in lines:
        words = WORD.findall(line.lower())
        counts.update(pairwise(words))
        counts.update(zip(words, words[2:], strict=False))
    yield from counts.items()


def cooccurrence_stripes(lines):
    stripes = defaultdict(dict)
    for (word, other), count in cooccurrence_pairs(lines):
        stripes[word][other] = count
    # A word that nothing follows has an empty stripe.
    for word, _ in word_count(lines):
        yield word, dict(sorted(stripes[word].items()))


def relative_frequency(lines):
    counts, totals = Counter(), Counter()
    for line in lines:
        words = WORD.findall(line.lower())
        counts.update(pairwise(words))
        totals.update(words[:-1])
    for pair, count in counts.items():
        yield pair, count / totals[pair[0]]


def total_sort(lines):
    rows = [line.split("\t") for line in lines]
    for day, name, version in sorted((day, name, version) for name, version, day in rows):
        yield day, [name, version]


def shuffle_and_split(lines):
    def number(line, purpose):
        digest = blake2b(line.encode(), digest_size=8, key=purpose).hexdigest()
        return int(digest, 16) / 2**64

    train = [line for line in lines if number(line, b"part") >= 0.2]
    for line in sorted(train, key=lambda line: number(line, b"epoch 1")):
        yield None, line


def replicated_join(lines, countries):
    names = dict(line.split("\t") for line in countries)
    for line in lines:
        code, _, zone = line.split("\t")
        yield zone, names[code]


def bloom_join(lines):
    for name, (section, *release) in reduce_join(lines):
        if section == "utils":
            yield name, release


def near_duplicates(lines):
    signatures = {}
    for line in lines:
        name, text = line.split("\t")
        words = re.findall(r"\w+", text.lower())
        shingles = {" ".join(words[at : at + 3]) for at in range(max(len(words) - 2, 1))}
        digests = [blake2b(shingle.encode(), digest_size=64).digest() for shingle in shingles]
        signatures[name] = [min(d[at : at + 2] for d in digests) for at in range(0, 64, 2)]
    for one, other in combinations(sorted(signatures), 2):
        equal = [a == b for a, b in zip(signatures[one], signatures[other], strict=True)]
        if any(all(equal[at : at + 4]) for at in range(0, 32, 4)):
            yield [one, other], sum(equal) / 32


def friends(lines):
    known = defaultdict(set)
    for line in lines:
        one, other = line.split("\t")
        known[one].add(other)
        known[other].add(one)
    for name in known:
        common = {
            other: len(known[name] & known[other]) for other in known.keys() - known[name] - {name}
        }
        best = sorted((-number, other) for other, number in common.items() if number)
        if best:
            yield name, [[other, -number] for number, other in best[:3]]


def frequent_itemsets(lines):
    counts = Counter()
    for line in lines:
        counts.update(combinations(sorted({*line.split("\t")[3].split(",")} - {""}), 3))
    for items, count in counts.items():
        if count >= 2:
            yield items, count


def breadth_first(lines):
    links = {node: others.split(",") for node, others in (line.split("\t") for line in lines)}
    distances, waiting = {"os": 0}, deque(["os"])
    while waiting:
        node = waiting.popleft()
        for other in links[node]:
            if other and other not in distances:
                distances[other] = distances[node] + 1
                waiting.append(other)
    for node, distance in distances.items():
        yield node, str(distance)


def page_rank(lines):
    links = {node: others.split(",") for node, others in (line.split("\t") for line in lines)}
    ranks = dict.fromkeys(links, 1.0)
    for _ in range(2):
        lost = sum(rank for node, rank in ranks.items() if links[node] == [""])
        given = dict.fromkeys(links, lost / len(links))
        for node, rank in ranks.items():
            for other in filter(None, links[node]):
                given[other] += rank / len(links[node])
        ranks = {node: 0.15 + 0.85 * got for node, got in given.items()}
    for node, rank in ranks.items():
        yield node, f"{rank:.9f}"


def matrix_product(lines):
    matrices = {"A": defaultdict(dict), "B": defaultdict(dict)}
    for line in lines:
        name, row, column, element = line.split("\t")
        matrices[name][int(row)][int(column)] = float(element)
    product = defaultdict(float)
    for i, row in matrices["A"].items():
        for k, a in row.items():
            for j, b in matrices["B"][k].items():
                product[i, j] += a * b
    yield from product.items()


def naive_bayes(lines):
    counts = Counter()
    for line in lines:
        name, text = line.split("\t")
        module = name.split(".")[0]
        counts[module, ""] += 1
        counts.update((module, word) for word in re.findall(r"[a-z]+", text.lower()))
    yield from counts.items()


def k_means(lines, centres):
    points = [[float(number) for number in line.split("\t")[:4]] for line in lines]
    means = [[float(number) for number in line.split("\t")[:4]] for line in centres]
    for _ in range(2):
        clusters = [[] for _ in means]
        for point in points:
            distances = [math.dist(point, mean) for mean in means]
            clusters[distances.index(min(distances))].append(point)
        means = [[statistics.mean(column) for column in zip(*c, strict=True)] for c in clusters]
    for number, (cluster, mean) in enumerate(zip(clusters, means, strict=True)):
        yield number, {"points": len(cluster), "centre": mean}


def gradient_naive(lines):
    data = np.array([[float(column) for column in line.split("\t")] for line in lines])
    y, x = data[:, 0], np.c_[data[:, 1:], np.ones(len(data))]
    weights = np.zeros(x.shape[1])
    for _ in range(2):
        weights -= (1 / (1 + np.exp(-x @ weights)) - y) @ x / len(x)
    yield None, weights.round(9).tolist()


def boosting(lines):
    rows = [[float(column) for column in line.split("\t")] for line in lines]
    scores, stumps = [0.0] * len(rows), []
    bins = [[max(0, min(23, math.floor(4 * x) + 12)) for x in row[1:]] for row in rows]
    for _ in range(3):
        chances = [1 / (1 + math.exp(-score)) for score in scores]
        slopes = [round(1e6 * (row[0] - p)) for row, p in zip(rows, chances, strict=True)]
        curves = [round(1e6 * (p - p * p)) for p in chances]
        best, stump = -1.0, ()
        for measure in range(len(bins[0])):
            for edge in range(24):
                gain, steps = 0.0, []
                for side in (True, False):
                    own = [i for i, row in enumerate(bins) if (row[measure] <= edge) is side]
                    slope, curve = sum(slopes[i] for i in own), sum(curves[i] for i in own)
                    gain += slope**2 / (curve + 10**6)
                    steps.append(slope / (curve + 10**6) / 2)
                if gain > best * (1 + 1e-12):
                    best, stump = gain, (measure, edge, *steps)
        stumps.append(stump)
        at, edge, low, high = stump
        scores = [
            s + (low if row[at] <= edge else high) for s, row in zip(scores, bins, strict=True)
        ]
    yield None, stumps


def filter_gradient(lines):
    images = np.array([line.split("\t") for line in lines], float).reshape(-1, 8, 8) / 16
    for i, j in np.ndindex(3, 3):
        if (i, j) != (1, 1):
            gradient = -(images[:, 1:-1, 1:-1] * images[:, i : i + 6, j : j + 6]).mean()
            yield [i, j], round(-0.5 * gradient, 9)

"""Terms that pages explain where they use them: the glossary's, in a sentence each."""

import re
from collections.abc import Iterator, Mapping
from functools import cache

TERMS = {
    "mapper": "the method that is called for each record of the input, and yields pairs",
    "map task": "one process that runs the mapper over one split of the input",
    "split": "the part of the input that one map task reads",
    "combiner": "a method that puts together some values of a key within one map task; it may run "
    "never, once or several times",
    "shuffle": "what is between map and reduce: pairs are divided, sent and sorted",
    "partitioner": "the rule that says which reducer gets a key: by default, a hash of it",
    "reducer": "the method that is called once for each key, with all its values",
    "reduce task": "one process that runs the reducer for all keys that are its own",
    "pair": "a key and a value, which between tasks are a line of text",
    "key": "the first half of a pair; all pairs with equal keys meet in one call of the reducer",
    "value": "the second half of a pair",
    "protocol": "how a pair is written as a line, and read: by default JSON, a TAB between the two",
    "JSONProtocol": "a protocol: the key and the value as JSON, with a TAB between",
    "HashPartitioner": "the partitioner that takes a hash of the key, Hadoop's default",
    "KeyFieldBasedPartitioner": "a partitioner that takes a hash of some fields of the key; of the "
    "whole key with SORT_VALUES, where Hadoop takes the value for a second field",
    "salted": "with a number added, so that several reducers share the values of one key",
    "skew": "much more work for one reducer than for the others, usually by one frequent key",
    "counter": "a number that tasks add to, and that is shown when the job ends",
    "step": "one map and reduce of a job that has several",
}


@cache
def _pattern(terms: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"\b((?:{'|'.join(sorted(terms, key=len, reverse=True))})s?)\b")


def mark_terms(text: str, terms: Mapping[str, str] = TERMS) -> Iterator[tuple[str, str]]:
    """A text in parts, each with the term that it is, where that is first, or with ""."""
    seen = {""}
    for number, part in enumerate(_pattern((*terms,)).split(text)):
        name = (part if part in terms else part[:-1]) if number % 2 else ""
        yield part, "" if name in seen else name
        seen.add(name)

"""What a task on a node reads and writes is what mrjob's own loops would."""

import io
import json

import pytest
from mrjob.job import MRJob
from mrjob.protocol import JSONProtocol, PickleProtocol, RawProtocol, ReprProtocol

from mapreduce.runners.yarn.task import code_quickly


class Words(MRJob):
    def mapper(self, _, line):
        for word in line.split():
            yield word, str(len(word))

    def combiner(self, word, numbers):
        yield word, next(numbers)

    def reducer(self, word, numbers):
        yield word, "+".join(numbers)


class Shouts(Words):
    """Writes lines in a way of its own."""

    def _wrap_protocols(self, step_num, step_type):
        read, write = super()._wrap_protocols(step_num, step_type)
        return read, lambda key, value: write(key.upper(), value)


LINES = "one two \u00e9\ud83d two\r\n\n".encode("utf-8", "surrogatepass") * 3000 + b"\xff three"


def output(job_class, mrc, lines, quickly, *files):
    job = job_class([f"--{mrc}", "--step-num=0", *map(str, files)])
    job.sandbox(stdin=io.BytesIO(lines))
    flush = code_quickly(job) if quickly else lambda: None
    job.execute()
    flush()
    return job.stdout.getvalue()


@pytest.mark.parametrize("protocol", [JSONProtocol, RawProtocol, PickleProtocol, ReprProtocol])
@pytest.mark.parametrize("job_class", [Words, Shouts])
def test_records_are_those_of_mrjobs_loops(job_class, protocol, monkeypatch, tmp_path):
    monkeypatch.setattr(Words, "INTERNAL_PROTOCOL", protocol)
    mapped = output(job_class, "mapper", LINES, False)
    assert output(job_class, "mapper", LINES, True) == mapped
    assert len(mapped.splitlines()) > 9000
    (tmp_path / "text").write_bytes(LINES)
    assert output(job_class, "mapper", b"", True, tmp_path / "text") == mapped
    lines = b"".join(sorted(mapped.splitlines(keepends=True)))
    for mrc in ("combiner", "reducer"):
        assert output(job_class, mrc, lines, True) == output(job_class, mrc, lines, False)


def test_what_waits_is_no_more_than_the_buffer_of_standard_output():
    written = []

    class Tells(MRJob):
        def mapper(self, number, _):
            yield number, "x" * 100
            written.append(len(self.stdout.getvalue()))

        INPUT_PROTOCOL = JSONProtocol

    lines = b"".join(b"%d\t0\n" % number for number in range(1000))
    content = output(Tells, "mapper", lines, True)
    assert [json.loads(line.split(b"\t")[0]) for line in content.splitlines()] == [*range(1000)]
    each = len(content) / 1000
    assert max(number * each - length for number, length in enumerate(written, 1)) <= 9000


def test_a_job_that_fails_names_the_same_error():
    for quickly in (True, False):
        with pytest.raises(TypeError, match=r"bytes is not JSON|value b'x'"):
            output(Bytes, "mapper", b"a\n", quickly)


class Bytes(MRJob):
    def mapper(self, _, line):
        yield line, b"x"

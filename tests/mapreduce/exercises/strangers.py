"""Submissions for exercise 4: right, wrong and hostile ones, by kind.

Those of ``HOSTILE`` start in a jail only; loops that fork end by themselves.
"""

_HEAD = "import os, signal, socket, sys, time\nfrom mapreduce.job import Job\n"

#: A right solution in parts, which a kind may replace.
_MAPPER = '_, section, size, _ = line.split("\\t"); yield section, (int(size), int(size))'
_COMBINER = "yield section, widest(ranges)"
_REDUCER = "low, high = widest(ranges); yield section, high - low"
_WIDEST = "low, high = zip(*ranges); return min(low), max(high)"


def _job(mapper=_MAPPER, combiner=_COMBINER, reducer=_REDUCER, widest=_WIDEST, before=""):
    combine = f"    def combiner(self, section, ranges):\n        {combiner}\n" if combiner else ""
    return (
        f"{_HEAD}{before}\nclass Ranges(Job):\n"
        f"    def mapper(self, _, line):\n        {mapper}\n{combine}"
        f"    def reducer(self, section, ranges):\n        {reducer}\n"
        f"def widest(ranges):\n    {widest}\n"
        "if __name__ == '__main__':\n    Ranges.run()\n"
    )


_FINAL = "widest(ranges); yield from ()\n    def reducer_final(self):\n        yield 'all', 0"
_SIZES = '_, section, size, _ = line.split("\\t"); yield section, int(size)'

RIGHT = {
    "right": _job(),
    "right without a combiner": _job(combiner=""),
    "right by lists": _job(
        mapper=_SIZES,
        combiner="",
        reducer="some = list(ranges); yield section, max(some) - min(some)",
    ),
    "right by sorting": _job(
        mapper=_SIZES,
        combiner="",
        reducer="some = sorted(ranges); yield section, some[-1] - some[0]",
    ),
    "right by flat lists": _job(
        mapper=_MAPPER,
        combiner="",
        reducer="some = sorted(n for pair in ranges for n in pair); "
        "yield section, some[-1] - some[0]",
    ),
    "=right('a name')": _job(),
    "right with\x1b[31m a name": _job(),
}

WRONG = {
    "texts compared": _job(
        mapper='_, section, size, _ = line.split("\\t"); yield section, (size, size)',
        reducer="low, high = widest(ranges); yield section, int(high) - int(low)",
    ),
    "the largest": _job(reducer="low, high = widest(ranges); yield section, high"),
    "from zero": _job(widest="low, high = zip(*ranges); return 0, max(high)"),
    "one too many": _job(reducer="low, high = widest(ranges); yield section, high - low + 1"),
    "texts come out": _job(reducer="low, high = widest(ranges); yield section, str(high - low)"),
    "by package": _job(
        mapper='name, _, size, _ = line.split("\\t"); yield name, (int(size), int(size))'
    ),
    "not one package alone": _job(
        reducer="low, high = widest(ranges)\n        if low != high: yield section, high - low"
    ),
    "no yield": _job(reducer="low, high = widest(ranges); (section, high - low)"),
    "first and last": _job(
        combiner="", reducer="some = list(ranges); yield section, some[-1][1] - some[0][0]"
    ),
    "one key": _job(reducer=_FINAL),
    "small numbers only": _job(
        reducer="low, high = widest(ranges)\n        if high > 100: yield section, high - low"
    ),
}

LAWLESS = {
    "the difference in the combiner": _job(
        mapper=_SIZES,
        combiner="some = list(ranges); yield section, max(some) - min(some)",
        reducer="some = list(ranges); yield section, max(some) - min(some)",
    ),
    "a combiner that takes half": _job(
        combiner="some = list(ranges); yield section, widest(some[: (len(some) + 1) // 2])"
    ),
    "prints": _job(mapper='print("x"); ' + _MAPPER),
}

_LOOP = "while True: pass"
_PRY = """
def pry():
    found = []
    for folder, _, files in os.walk("/"):
        if folder.startswith(("/proc", "/usr", "/sys", sys.prefix, sys.base_prefix)):
            continue
        found += [f for f in files if "04_ranges" in folder or f in ("00.py", "grades.json")]
    return found

FOUND = pry()
"""
_FORGE = """
for fd in range(3, 64):
    try:
        os.write(fd, b'{"error": "", "found": []}\\n' * 3)
    except OSError:
        pass
"""
_STEPS = "for step in found.get('steps', []): "
_RECORDS = "for task in step['reduces'] for one in task['outputs']]"


def _forged(change):
    """A right job whose process says another thing of a trace or a finding than it found."""
    before = f"def forged(one):\n    found = real(one)\n    {change}\n    return found\n"
    return _job(before=f"import __main__\nreal = __main__.asdict\n{before}__main__.asdict = forged")


#: Those that must do no harm, and get no point for an answer.
HOSTILE = {
    "an endless loop": _job(mapper=_LOOP),
    "an endless loop when imported": _job(before=_LOOP),
    "catches everything": _job(
        mapper="while True:\n"
        "            try: time.sleep(60)\n"
        "            except BaseException: pass"
    ),
    "forks in a loop": _job(
        mapper="for _ in range(300):\n            if not os.fork(): time.sleep(30); os._exit(0)"
    ),
    "forks when imported": _job(
        before="for _ in range(300):\n    if not os.fork(): time.sleep(30); os._exit(0)"
    ),
    "much output": _job(mapper="while True: yield 'x' * 10_000, 1"),
    "one long line": _job(mapper="yield 'x' * (200 << 20), 1"),
    "much memory": _job(mapper="x = bytearray(10 << 30); yield len(x), 1"),
    "much memory by many": _job(
        before="for _ in range(20):\n"
        "    if not os.fork():\n"
        "        x = b'x' * (200 << 20); time.sleep(20); os._exit(0)\ntime.sleep(20)"
    ),
    "a large file": _job(before="open('large', 'wb').write(b'x' * (100 << 20))"),
    "many files": _job(before="for n in range(20_000): open(f'f{n}', 'w').close()"),
    "deletes its folder": _job(before="import shutil; shutil.rmtree('.')"),
    "kills its parent": _job(mapper="os.kill(os.getppid(), signal.SIGKILL); yield 1, 1"),
    "kills all": _job(mapper="os.kill(-1, signal.SIGKILL); yield 1, 1"),
    "exits when imported": _job(before="sys.exit(0)"),
    "ends at once": _job(before="os._exit(0)"),
    "closes all files and sleeps": _job(before="os.closerange(0, 99); time.sleep(10_000)"),
    "exits in a task": _job(mapper="sys.exit(3)"),
    "ends in a task": _job(mapper="os._exit(3)"),
    "pries": _job(before=_PRY, mapper="yield str(FOUND), (1, 1)"),
    "calls home": _job(mapper="socket.create_connection(('127.0.0.1', 80), 5); yield 1, 1"),
    "writes elsewhere": _job(mapper=f"open({__file__!r} + '.harm', 'w').write('x'); yield 1, 1"),
    "forges an answer": _job(before=_FORGE),
    "forges letters": _forged(f"{_STEPS}[one.update(line='\\u0416') {_RECORDS}"),
    "forges a run without tasks": _forged(f"{_STEPS}step.update(maps=[], reduces=[])"),
    "forges names of files": _forged("found.update(state='broken', lines=['a'], files=[''] * 2)"),
    "leaves a process": _job(
        before="if not os.fork():\n    os.setsid()\n    time.sleep(600)\n    os._exit(0)",
        reducer="yield 1, 1",
    ),
    "obeyed by a terminal": _job(
        mapper="raise ValueError('\\x1b]0;owned\\x07<script>alert(1)</script>')"
    ),
    "never ends its recursion": _job(before="def f(): return f()\nf()"),
    "is no Python": "class Ranges(Job:\n",
    "has no job": "x = 1\n",
    "has two jobs": f"{_HEAD}class A(Job):\n    pass\nclass B(Job):\n    pass\n",
    "is empty": "",
    "reads what is typed": _job(before="sys.stdin.read(); input()"),
}

_HOARD = """
import ctypes, mmap, threading
C = ctypes.CDLL(None, use_errno=True)
C.shmat.restype = ctypes.c_void_p
HELD, SOME = [], b"x" * (1 << 20)

def hold():
{0}

try:
    SIZE = 0
    for _ in range(11):
        SIZE += hold()
except (OSError, ValueError):
    pass
time.sleep(1)
raise SystemExit(f"ALIVE with {{SIZE}} MiB" if SIZE > 300 else f"little: {{SIZE}} MiB")
"""


def _hoard(body, before=""):
    """Tries to hold 660 MiB, by 60 MiB each time; more than 300 are too many."""
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    return _job(before=before + _HOARD.format(lines))


#: Memory that no table of pages shows, where 256 MiB are allowed.
MEMORY = {
    "files of memory": _hoard(
        """
HELD.append(os.memfd_create("x"))
return sum(os.write(HELD[-1], SOME) for _ in range(60)) >> 20
"""
    ),
    "segments without a process": _hoard(
        """
key = C.shmget(0, ctypes.c_size_t(60 << 20), 0o1600)
if key < 0: raise OSError
at = C.shmat(key, None, 0)
C.memset(ctypes.c_void_p(at), 1, 60 << 20)
C.shmdt(ctypes.c_void_p(at))
return 60
"""
    ),
    "a file system in nested namespaces": _hoard(
        """
with open(f"tmp/{len(HELD)}", "wb") as file:
    HELD.append(1)
    return sum(file.write(SOME) for _ in range(60)) >> 20
""",
        before="""
import ctypes
USER, C = os.getuid(), ctypes.CDLL(None)
C.unshare(0x10000000 | 0x20000)
for name, text in (("setgroups", "deny"), ("uid_map", f"0 {USER} 1"), ("gid_map", f"0 {USER} 1")):
    try: open("/proc/self/" + name, "w").write(text)
    except OSError: pass
C.mount(b"none", b"/submission/tmp", b"tmpfs", 0, b"size=700m")
""",
    ),
    "shared pages that are let go": _hoard(
        """
pages = mmap.mmap(-1, 60 << 20)
for _ in range(60): pages.write(SOME)
pages.madvise(mmap.MADV_DONTNEED)
HELD.append(pages)
return 60
"""
    ),
    "a device's pages that are let go": _hoard(
        """
with open("/dev/zero", "r+b") as file:
    pages = mmap.mmap(file.fileno(), 60 << 20)
for _ in range(60): pages.write(SOME)
pages.madvise(mmap.MADV_DONTNEED)
HELD.append(pages)
return 60
"""
    ),
    "letters that nobody reads": _hoard(
        """
sent = 0
while sent < 60 << 20:
    HELD.append(socket.socketpair())
    HELD[-1][0].setblocking(False)
    try:
        while True: sent += HELD[-1][0].send(SOME[:100_000])
    except BlockingIOError: pass
return 60
"""
    ),
    "processes without their first thread": _hoard(
        """
if len(HELD) == 3:
    for _ in range(150):
        time.sleep(0.1)
        if any(os.waitpid(one, os.WNOHANG) != (0, 0) for one in HELD):
            raise SystemExit("fewer")
    raise SystemExit("ALIVE by three")
HELD.append(os.fork())
if HELD[-1]: return 0
threading.Thread(target=lambda: (HELD.append(SOME * 200), time.sleep(60))).start()
C.syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""
    ),
    "a message in each queue": _hoard(
        """
for _ in range(8000):
    key = C.msgget(0, 0o1600)
    if key < 0 or C.msgsnd(key, (ctypes.c_char * 8192)(1), 8000, 0o4000) < 0: raise OSError
return 60
"""
    ),
}

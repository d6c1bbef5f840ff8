"""Forbids a program the system calls that give memory which no table of its pages shows.

Such memory is in files without a folder, in System V's segments and queues, in buffers of sockets
and pipes, in shared pages that are mapped no more, and in file systems of nested namespaces.
"""

import ctypes
import errno
import os
import platform
import struct

#: Of prctl(2): the option and its mode.
_SET_SECCOMP, _FILTER = 22, 2

#: Instructions: load a word, compare, test bits, return; and what is returned.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000

#: Where the number of a call, the kind of machine and the arguments are.
_NUMBER, _MACHINE, _ARGUMENTS = 0, 4, 16

#: Of clone(2): all that make namespaces. Of mmap(2).
_NAMESPACES, _SHARED, _ANONYMOUS = 0x7E020000, 0x01, 0x20

#: Calls of this number and above are of newer kernels, or of another way to call (x32).
_UNKNOWN = 463

#: Of each machine its kind, and the numbers of clone, mmap, and of what is forbidden:
#: memfd_create memfd_secret shmget msgget semget mq_open socket socketpair
#: sendfile splice tee vmsplice io_setup io_uring_setup inotify_init inotify_init1 fanotify_init
#: unshare setns userfaultfd bpf perf_event_open add_key request_key keyctl landlock_create_ruleset
_MACHINES = {
    "x86_64": (
        *(0xC000003E, 56, 9),
        *(319, 447, 29, 68, 64, 240, 41, 53, 40, 275, 276, 278, 206, 425, 253, 294, 300),
        *(272, 308, 323, 321, 298, 248, 249, 250, 444),
    ),
    "aarch64": (
        *(0xC00000B7, 220, 222),
        *(279, 447, 194, 186, 190, 180, 198, 199, 71, 76, 77, 75, 0, 425, 26, 262),
        *(97, 268, 282, 280, 241, 217, 218, 219, 444),
    ),
}

#: It has its flags in memory, which a filter does not see: the C library uses clone instead.
_CLONE3 = 435


def forbid() -> None:
    """Forbid them, for this process and all that it starts. Raises OSError."""
    if platform.machine() not in _MACHINES:
        raise OSError(errno.ENOSYS, f"no filter of system calls for {platform.machine()}")
    program = _program(*_MACHINES[platform.machine()])
    code = ctypes.create_string_buffer(program, len(program))
    given = struct.pack("HP", len(program) // 8, ctypes.addressof(code))
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_SECCOMP, _FILTER, given, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "filter")


def _program(machine: int, clone: int, mmap: int, *forbidden: int) -> bytes:
    """The filter, in the kernel's instructions; a jump skips as many as its last two say."""
    denied, missing = _FAIL | errno.EPERM, _FAIL | errno.ENOSYS
    flags_of_clone, flags_of_mmap = _ARGUMENTS, _ARGUMENTS + 3 * 8
    steps = [
        *[(_LOAD, _MACHINE), (_EQUAL, machine, 1, 0), (_RETURN, denied), (_LOAD, _NUMBER)],
        *[(_AT_LEAST, _UNKNOWN, 0, 1), (_RETURN, missing)],
        *[(_EQUAL, _CLONE3, 0, 1), (_RETURN, missing)],
    ]
    for number in forbidden:
        steps += [(_EQUAL, number, 0, 1), (_RETURN, denied)]
    steps += [
        *[(_EQUAL, clone, 0, 2), (_LOAD, flags_of_clone), (_ANY_BIT, _NAMESPACES, 4, 5)],
        *[(_EQUAL, mmap, 0, 4), (_LOAD, flags_of_mmap)],
        *[(_ANY_BIT, _SHARED, 0, 2), (_ANY_BIT, _ANONYMOUS, 0, 1)],
        *[(_RETURN, denied), (_RETURN, _ALLOW)],
    ]
    return b"".join(
        struct.pack("=HBBI", code, *(jumps or (0, 0)), value) for code, value, *jumps in steps
    )

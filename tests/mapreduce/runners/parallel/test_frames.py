"""Binary records between map and reduce."""

import numpy as np
import pytest

from mapreduce.reduction.message import Message, WireProtocol
from mapreduce.runners.parallel.frames import FrameWriter, grouped_frames
from mapreduce.runners.parallel.segments import Target


@pytest.mark.parametrize("size", [0, 5, 30_000])
def test_frames_come_back_aligned_and_in_order(tmp_path, size):
    protocol = WireProtocol()
    outputs = []
    for task in range(3):
        writer = FrameWriter(Target(str(tmp_path / f"out-{task}")), 2)
        for number in range(4):
            message = Message({"task": task, "number": number}, {"x": np.full(size, task, "f4")})
            writer.write(*protocol.write_frame(f"key {number % 3}", message))
        writer.close()
        outputs.append(writer.result["segments"])
    seen = []
    for partition in range(2):
        segments = [segment for output in outputs for segment in output[partition]]
        pairs = [protocol.read_frame(*pair) for pair in grouped_frames(segments)]
        keys = [key for key, _ in pairs]
        assert keys == sorted(keys)
        for _, message in pairs:
            array = message.arrays["x"]
            assert array.tolist() == [message.meta["task"]] * size
            if size == 30_000:
                assert array.ctypes.data % 64 == 0
        seen += [(key, message.meta["task"], message.meta["number"]) for key, message in pairs]
    expected = [
        (f"key {number % 3}", task, number)
        for key in range(3)
        for task in range(3)
        for number in range(4)
        if number % 3 == key
    ]
    assert sorted(seen) == sorted(expected)
    assert [entry for entry in seen if entry[0] == "key 0"] == expected[:6]

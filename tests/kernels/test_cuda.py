"""What is of the CUDA kernels alone: errors, copies, and the arguments of cuBLAS."""

import ctypes
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError
from numba.cuda.cudadrv.error import CudaSupportError

import kernels.cuda
import naive
from arrays import assert_sums, normal
from devices import DEVICES, SIMULATED
from kernels.cuda import cublas, dense, errors, launch, memory, reduce, tiles
from kernels.cuda.device_array import DeviceArray
from kernels.cuda.launch import Kernel
from quick import cases

needs_device = pytest.mark.skipif("cuda" not in DEVICES, reason="no CUDA device, nor its simulator")


def operands(rows, columns, depth, transpose_a, transpose_b, dtype="float32"):
    a = normal(1, (depth, rows) if transpose_a else (rows, depth), dtype)
    b = normal(2, (columns, depth) if transpose_b else (depth, columns), dtype)
    return a, b


def assert_is_product(out, a, b, transpose_a, transpose_b):
    left, right = a.T if transpose_a else a, b.T if transpose_b else b
    magnitude = naive.product(abs(left), abs(right))
    assert_sums(out, naive.product(left, right), magnitude, left.shape[1])


def edge(side, i):
    return (side - 1, side, side + 1, 2 * side + 3)[i % 4]


TRANSPOSED = [(False, False), (True, False), (False, True), (True, True)]
HEIGHT, WIDTH, DEPTH = tiles.HEIGHT, tiles.WIDTH, tiles.DEPTH
DEPTHS = [0, 1, DEPTH - 1, DEPTH, DEPTH + 1, 2 * DEPTH + 3]
# Each edge of a tile once as rows and once as columns, with every depth.
TILES = [
    (edge(HEIGHT, i), edge(WIDTH, i + i // 4 + shift), depth)
    for shift in (0, 1)
    for i, depth in enumerate(DEPTHS)
]


class TestTiles:
    @needs_device
    @pytest.mark.parametrize("flip", [False, True])
    @pytest.mark.parametrize("tile", range(len(TILES)))
    def test_products(self, tile, flip):
        """Each factor of each size as it is and transposed, and stored in two ways."""
        rows, columns, depth = TILES[tile]
        transpose_a, transpose_b = flip, flip ^ (tile % 2 == 1)
        dtype = "float16" if flip ^ (tile // 2 % 2 == 1) else "float32"
        a, b = operands(rows, columns, depth, transpose_a, transpose_b, dtype)
        out = memory.to_device(np.full((rows, columns), np.nan, np.float32))
        factors = memory.to_device(a), memory.to_device(b)
        dense.tiled_product(*factors, out, transpose_a, transpose_b)
        assert_is_product(out.copy_to_host(), a, b, transpose_a, transpose_b)

    @pytest.mark.skipif(not SIMULATED, reason="for the simulator, whose tiles are small elsewhere")
    @pytest.mark.parametrize(("rows", "columns"), [(33, 3), (3, 18)])
    def test_tiles_of_the_proportions_that_gpus_have(self, monkeypatch, rows, columns):
        """Of a quarter of the height and width: threads take turns in one interpreter."""
        sizes = {
            **{"DOWN": 8, "ACROSS": 4, "SIDE": 2, "DEPTH": 8, "THREADS": 32, "EACH": 4},
            **{"HALF_HEIGHT": 16, "HALF_WIDTH": 8, "HEIGHT": 32, "WIDTH": 16},
            **{"LEFT": 34, "RIGHT": 18, "LEFT_AREA": 544, "RIGHT_AREA": 288},
            **{"LEFT_EACH": 8, "RIGHT_EACH": 4},
        }
        for name, size in sizes.items():
            monkeypatch.setattr(tiles, name, size)
            monkeypatch.setattr(dense, name, size, raising=False)
        a, b = operands(rows, columns, 19, False, True)
        out = memory.to_device(np.full((rows, columns), np.nan, np.float32))
        dense.tiled_product(memory.to_device(a), memory.to_device(b), out, False, True)
        assert_is_product(out.copy_to_host(), a, b, False, True)

    @needs_device
    def test_what_is_not_finite_spoils_its_row_and_column_alone(self):
        a, b = operands(HEIGHT + 1, WIDTH + 1, DEPTH + 1, False, False)
        a[2, 1], b[DEPTH, WIDTH] = np.nan, np.inf
        out = memory.to_device(np.empty((HEIGHT + 1, WIDTH + 1), np.float32))
        dense.tiled_product(memory.to_device(a), memory.to_device(b), out, False, False)
        bad = ~np.isfinite(out.copy_to_host())
        assert bad[2].all()
        assert bad[:, WIDTH].all()
        bad[2] = bad[:, WIDTH] = False
        assert not bad.any()

    @needs_device
    def test_shapes_that_do_not_match(self):
        a, b = memory.to_device(normal(1, (2, 3))), memory.to_device(normal(2, (2, 3)))
        with pytest.raises(ValueError, match=r"matmul: \(2, 3\) and \(2, 3\) do not give \(2, 2\)"):
            dense.product(a, b, memory.to_device(normal(3, (2, 2))))


class TestMemory:
    @needs_device
    def test_what_is_on_the_device_stays_there(self, monkeypatch):
        x, weight, bias = normal(1, (5, 4)), normal(2, (4, 3)), normal(3, 3)
        host = dense.affine(x, weight, bias, np.empty((5, 3), np.float32), True)
        arrays = [memory.to_device(array) for array in (x, weight, bias)]
        out, below = (memory.to_device(np.zeros(shape, np.float32)) for shape in ((5, 3), (5, 4)))
        monkeypatch.setattr(DeviceArray, "of_host", None)
        assert dense.affine(*arrays, out, True) is out
        assert dense.relu_backward(out, arrays[1], arrays[0], below) is below
        assert reduce.add_into(out, out) is out
        np.testing.assert_array_equal(out.copy_to_host(), 2 * host)

    @needs_device
    def test_host_and_device_may_be_mixed(self):
        x, weight, bias = normal(1, (5, 4)), normal(2, (4, 3)), normal(3, 3)
        expected = dense.affine(x, weight, bias, np.empty((5, 3), np.float32), False)
        out = np.empty((5, 3), np.float32)
        assert dense.affine(x, memory.to_device(weight), bias, out, False) is out
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(memory.to_host(memory.to_device(x)), x)
        assert memory.to_host(x) is x

    @needs_device
    def test_memory_of_a_call_is_used_again(self, monkeypatch):
        with memory.Call("affine") as call:
            large = call.kept("a test", (3, 4), np.float32)
            other = call.kept("a test", (2, 5), np.float64)
            monkeypatch.setattr(DeviceArray, "empty", None)
            small = call.kept("a test", (2, 5), np.float32)
        assert (large.shape, small.shape, other.shape) == ((3, 4), (2, 5), (2, 5))
        assert (large.dtype, small.dtype, other.dtype) == ("float32", "float32", "float64")

    @needs_device
    def test_a_part_of_rows_on_the_device_is_refused(self):
        with pytest.raises(ValueError, match=r"expected a C-contiguous array on the device, found"):
            memory.to_device(cuda.to_device(normal(1, (5, 4)))[:, :2])

    @needs_device
    def test_one_element_with_a_stride(self):
        """NumPy calls it contiguous."""
        there = memory.to_device(normal(1, 3)[2:][::-1])
        np.testing.assert_array_equal(there.copy_to_host(), normal(1, 3)[2:])


class TestDeviceArray:
    def test_parts_and_shapes(self):
        array = DeviceArray(None, 1000, (6, 4), np.dtype("float32"))
        part = array[1:-2]
        assert (part.address, part.shape, part.size, len(part)) == (1016, (3, 4), 12, 3)
        assert part.reshape((2, 6)).parameters == (0, 0, 12, 4, 1016, 2, 6, 24, 4)
        assert (array[-1].address, array[-1].shape, array[4:2].size) == (1080, (4,), 0)
        assert array.reshape(24).kind == (np.float32, 1)

    def test_what_is_refused(self):
        array = DeviceArray(None, 1000, (6, 4), np.dtype("float32"))
        with pytest.raises(ValueError, match=r"shape \(6, 4\) does not fill \(5, 5\)"):
            array.reshape((5, 5))
        with pytest.raises(ValueError, match="a step of 2"):
            array[::2]
        with pytest.raises(IndexError):
            array[6]
        with pytest.raises(ValueError, match=r"shape \(3,\) for \(4,\)"):
            array[0] = np.zeros(3)
        for out in (np.empty((6, 4)), np.empty((4, 6), np.float32)):
            with pytest.raises(ValueError, match="expected float32 of the shape"):
                array.copy_to_host(out)


class TestStart:
    """What the driver is given, without one."""

    @pytest.fixture
    def started(self, monkeypatch):
        """Starts a kernel; returns the words at the addresses that the driver got, and its call."""

        def run(*arguments, size=(3, 5)):
            calls = []
            monkeypatch.setattr(launch, "SIMULATED", False)
            monkeypatch.setattr(launch, "driver", lambda name: lambda *given: calls.append(given))
            layout = "".join(map(launch.layout_of, arguments))
            pack = struct.Struct(f"<{layout}").pack_into
            monkeypatch.setattr(Kernel, "_compile", lambda self, arguments: ("handle", pack))
            Kernel(operands)[size](*arguments)
            ((handle, *call, table, extra),) = calls
            assert (handle, extra) == ("handle", 0)
            count = struct.calcsize(f"<{layout}") // 8
            places = (ctypes.c_uint64 * count).from_address(table)
            return call, [ctypes.string_at(place, 8) for place in places]

        return run

    def test_words(self, started):
        array = DeviceArray(None, 4096, (2, 3), np.dtype("float64"))
        given = array, 7, np.float32(1.5), True, np.uint64(2**64 - 1), 0.25, np.float16(2)
        call, words = started(*given, size=((2, 4), (16, 8)))
        assert call == [2, 4, 1, 16, 8, 1, 0, 0]
        assert [int.from_bytes(word, "little") for word in words[:9]] == [
            *(0, 0, 6, 8, 4096),
            *(2, 3, 24, 8),
        ]
        numbers = ("q", 7), ("f", 1.5), ("?", True), ("Q", 2**64 - 1), ("d", 0.25), ("e", 2)
        for word, (letter, number) in zip(words[9:], numbers, strict=True):
            assert struct.unpack_from(f"<{letter}", word) == (number,)

    def test_what_is_no_number(self, started):
        with pytest.raises(TypeError, match="arrays on the device and numbers, found list"):
            started([1])


@needs_device
def test_the_programs_of_the_page():
    page = (Path(__file__).parents[2] / "docs" / "cuda.md").read_text()
    start, use = re.findall(r"^```python\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    names = {}
    exec(start, {})
    exec(use, names)
    np.testing.assert_array_equal(names["out"], np.full((2, 4), 3))


OUT_OF_MEMORY = CudaAPIError(2, "Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY")


class TestErrors:
    @cases(
        "message, kind, advice",
        ("CUDA driver library cannot be found.", errors.NoDeviceError, "`nvidia-smi` shows"),
        ("init: CUDA_ERROR_NO_DEVICE (100)", errors.NoDeviceError, r"\$CUDA_VISIBLE_DEVICES"),
        ("libNVVM cannot be found", errors.ToolkitError, "gradreduce.cuda."),
        ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", errors.ToolkitError, "not newer than"),
        ("CUDA_ERROR_OUT_OF_MEMORY", errors.OutOfDeviceMemoryError, "fewer rows a slice"),
        ("CUDA initialized before forking", errors.ForkedError, "in the workers alone"),
        ("CUDA_ERROR_ECC_UNCORRECTABLE", errors.CudaError, "dmesg"),
    )
    def test_each_says_what_to_do(self, message, kind, advice):
        known = errors.explained(CudaSupportError(f"Error at\n{message}"), "affine")
        assert type(known) is kind
        assert str(known).endswith(f"Found: Error at {message}")
        with pytest.raises(kind, match=rf"^affine: expected .*Next: .*{advice}|{advice}.*Next: "):
            raise known

    def test_of_a_call(self):
        with (
            pytest.raises(errors.OutOfDeviceMemoryError, match=r"^affine: expected room") as caught,
            memory.Call("affine"),
        ):
            raise OUT_OF_MEMORY
        assert caught.value.__cause__ is OUT_OF_MEMORY

    def test_when_results_come_back(self):
        class Lost:
            def copy_to_host(self, host):
                raise OUT_OF_MEMORY

        with pytest.raises(errors.OutOfDeviceMemoryError), memory.Call("affine") as call:
            call._results.append((np.zeros(1), Lost()))

    @pytest.mark.parametrize("error", [ValueError("nvvm"), KeyboardInterrupt(), MemoryError()])
    def test_others_pass(self, error):
        with pytest.raises(type(error)) as caught, memory.Call("affine"):
            raise error
        assert caught.value is error


@cases(
    "error, words",
    (ModuleNotFoundError("No module named 'cuda.bindings'"), "found Numba alone"),
    (AttributeError("module 'numpy' has no attribute 'row_stack'"), "knows, found NumPy"),
)
def test_what_a_kernel_cannot_start_without(monkeypatch, error, words):
    def import_module(name):
        raise error

    monkeypatch.setattr(kernels.cuda, "import_module", import_module)
    monkeypatch.setattr(kernels.cuda, "version", lambda name: "0.30.4")
    with pytest.raises(errors.ToolkitError, match=rf"{words}.*gradreduce\[cuda\].*{error}"):
        kernels.cuda._load_functions()


class Blas:
    """SciPy's BLAS with the arguments of cuBLAS, which are those of Fortran's, on the host."""

    def __getattr__(self, name):
        cython_blas = pytest.importorskip("scipy.linalg.cython_blas")
        capsule = cython_blas.__pyx_capi__[name]
        signature = ctypes.pythonapi.PyCapsule_GetName
        signature.restype, signature.argtypes = ctypes.c_char_p, [ctypes.py_object]
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        gemm = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13)(pointer(capsule, signature(capsule)))

        def call(handle, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
            assert handle == 7
            letters = [ctypes.byref(ctypes.c_char(b"NT"[t : t + 1])) for t in (transa, transb)]
            m, n, k, lda, ldb, ldc = (
                ctypes.byref(ctypes.c_int(v)) for v in (m, n, k, lda, ldb, ldc)
            )
            gemm(*letters, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)

        return call

    def sgemm_ex(
        self, handle, ta, tb, m, n, k, alpha, a, atype, lda, b, btype, ldb, beta, c, ctype, ldc
    ):
        """Of float16 factors, float32 results."""
        assert (atype, btype, ctype) == (2, 2, 0)
        left = self.widened(a, lda * (m if ta else k))
        right = self.widened(b, ldb * (k if tb else n))
        at = left.ctypes.data, lda, right.ctypes.data, ldb
        self.sgemm(handle, ta, tb, m, n, k, alpha, *at, beta, c, ldc)

    @staticmethod
    def widened(address, size):
        numbers = (ctypes.c_uint16 * size).from_address(address)
        return np.frombuffer(numbers, np.float16).astype(np.float32)


class TestCublas:
    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
    @pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSED)
    @pytest.mark.parametrize("shape", [(1, 1, 1), (5, 3, 4), (2, 7, 0), (0, 3, 2), (9, 1, 6)])
    def test_arguments(self, monkeypatch, shape, transpose_a, transpose_b, dtype):
        monkeypatch.setattr(cublas, "_bindings", Blas())
        monkeypatch.setattr(cublas._handles, "handle", 7)
        monkeypatch.setattr(cublas, "_address", lambda array: array.ctypes.data)
        a, b = operands(*shape, transpose_a, transpose_b, dtype)
        out = np.full(shape[:2], np.nan, "float32" if dtype == "float16" else dtype)
        cublas.product(a, b, out, transpose_a, transpose_b)
        assert_is_product(out, a, b, transpose_a, transpose_b)

    def test_it_says_why_it_is_not_used(self):
        if not cublas.available():
            assert cublas.missing()

#!/usr/bin/env python3
"""Executes the two slices as compiled for gfx950 in an interpreter of that machine's code, without a GPU.

Every launch must leave the bits that the simulator computes, on one rank and on four. Launches run under several
schedules: fair round robin, adversarial, and both with results delayed to their s_waitcnt.

LIBRARY is slices_interpreted.cpp as a shared library; ONE_RANK and FOUR_RANKS are code objects of
persistent_kernel<gfx950, slices<small_slices<1>>> and of slices_four_ranks.hip. Environment: ROCM_LLVM_BIN, HIPCXX;
MONOLAYER_GFXI is the interpreter's folder (gfxi), else ../shared/tools/gfxi beside the repository is taken. Without the
interpreter the test is skipped (exit code 77).
"""
import argparse
import collections
import contextlib
import ctypes
import os
import pathlib
import sys
import tempfile
import time

from test_gfx_toy import ROOT, interpreter, skip

Launch = collections.namedtuple("Launch", "rows first count blocks groups ring_limit", defaults=(1, 0))
EVERY = (0, 1, 2, 3, 4, 5, 6, 7)
START = time.monotonic()
WRAP = 0xfffffffd  # the low word of the epoch passes 0 in the second launch


class Range:
    """Memory of the library, in the form that the interpreter knows."""

    def __init__(self, address, size):
        self.addr, self.n = address, size


class Layers:
    """Layers A B A B on 1 or 4 ranks: see slices_interpreted.cpp."""

    def __init__(self, library, ranks, g, code_path):
        self.module, self.ranks, self.g = library, ranks, g
        self.handle = library.ml_create(ranks)
        if not self.handle:
            sys.exit(f"FAILED  {ranks} ranks: {library.ml_message().decode()}")
        self.code = g.CodeObject(str(code_path))
        (self.kernel,) = self.code.kernels

    def fresh(self, epoch):
        self.ranges = []
        self.module.ml_fresh(self.handle, epoch)
        pairs = (ctypes.c_ulonglong * 512)()
        count = self.module.ml_ranges(self.handle, pairs, 256)
        assert 0 < count < 240, count
        self.ranges = [Range(pairs[2 * i], pairs[2 * i + 1]) for i in range(count)]
        for r in self.ranges:
            self.g.Buf.live.add(r)

    def launch(self, how, **schedule):
        self.module.ml_set_rows(self.handle, (ctypes.c_int * len(how.rows))(*how.rows), len(how.rows))
        size = self.module.ml_params_bytes()
        params = b""
        for rank in range(self.ranks):
            one = ctypes.create_string_buffer(size)
            wrong = self.module.ml_params(self.handle, rank, how.first, how.count, how.blocks, how.groups,
                                           how.ring_limit, one)
            assert not wrong, wrong.decode()
            params += one.raw
        stats = self.g.launch(self.code, self.kernel, (how.blocks * self.ranks,), (self.module.ml_threads(),), [params],
                              dyn_lds=self.module.ml_lds_bytes(), max_insts=200_000_000, **schedule)
        wrong = self.module.ml_difference(self.handle, how.first, how.count)
        assert not wrong, wrong.decode()
        return stats

    def run(self, launches, epoch=0, **schedule):
        """The launches one after another on new memory; each starts from rows of its own."""
        self.fresh(epoch)
        stats = [self.launch(how, **schedule) for how in launches]
        return sum(s.insts for s in stats), sum(s.exec_s for s in stats)

    def spoiled(self, how=Launch(EVERY, 0, 2, 3)):
        """The comparison goes red: one bit in 64 bytes of the largest weights is wrong. Returns what it says."""
        self.fresh(0)
        largest = max(self.ranges, key=lambda r: r.n)
        memory = (ctypes.c_ubyte * largest.n).from_address(largest.addr)
        for i in range(0, largest.n, 64):
            memory[i] ^= 1
        try:
            self.launch(how, sched="rr", seed=1)
        except (AssertionError, RuntimeError) as error:
            return str(error)
        return ""

    def check(self, title, cases):
        """Accuracy, then every case; prints a line each. Returns what passed, a bool each."""
        accuracy = self.module.ml_accuracy(self.handle).decode()
        print(f"{title}ready at {time.monotonic() - START:.1f} s, {accuracy}", flush=True)
        results = [] if accuracy.startswith("ok") else [False]
        for name, launches, epoch, sched, seed, late in cases:
            self.g.gfxi_launch.__defaults__ = (3 if late else 1, 0)  # the interpreter reads --async at import only
            case = f"{title}{name}, {sched} {seed}{', delayed' if late else ''}"
            try:
                insts, seconds = self.run(launches, epoch, sched=sched, seed=seed)
                results.append(True)
                print(f"ok      {case}: {insts} wave instructions, {seconds:.2f} s", flush=True)
            except (AssertionError, RuntimeError) as error:
                results.append(False)
                print(f"FAILED  {case}: {error}", flush=True)
        return results

    def spoiled_is_seen(self, words, *how):
        said = self.spoiled(*how)
        good = said.startswith(words)
        print(f"{'ok     ' if good else 'FAILED '} spoiled weights are seen: {said or 'nothing was said'}")
        return good

    def close(self):
        self.ranges = []
        self.module.ml_destroy(self.handle)


@contextlib.contextmanager
def opened_interpreter():
    """The interpreter, with a folder of its own while it is in use. Ends the program (77) where it is not at hand."""
    folder = os.environ.get("MONOLAYER_GFXI") or ROOT.parent / "shared/tools/gfxi"
    if not (pathlib.Path(folder) / "run.py").is_file():
        skip(f"no interpreter in {folder}")
    if not os.environ.get("ROCM_LLVM_BIN"):
        skip("ROCM_LLVM_BIN is not set")
    with tempfile.TemporaryDirectory() as scratch:
        yield interpreter(folder, pathlib.Path(scratch), "gfx950")


def finish(passed, failed):
    print(f"{passed} passed, {failed} failed, {time.monotonic() - START:.1f} s")
    return 1 if failed else 0


def load(path):
    library = ctypes.CDLL(str(path))
    handle, integer = ctypes.c_void_p, ctypes.c_int
    for name, result, arguments in [
            ("ml_create", handle, [integer]), ("ml_destroy", None, [handle]), ("ml_message", ctypes.c_char_p, []),
            ("ml_lds_bytes", integer, []), ("ml_threads", integer, []), ("ml_params_bytes", integer, []),
            ("ml_fresh", None, [handle, ctypes.c_ulonglong]),
            ("ml_set_rows", None, [handle, ctypes.POINTER(integer), integer]),
            ("ml_ranges", integer, [handle, ctypes.POINTER(ctypes.c_ulonglong), integer]),
            ("ml_params", ctypes.c_char_p, [handle] + [integer] * 5 + [ctypes.c_uint, ctypes.c_char_p]),
            ("ml_difference", ctypes.c_char_p, [handle, integer, integer]),
            ("ml_accuracy", ctypes.c_char_p, [handle])]:
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def cases(ranks, seeds):
    """(name, launches, epoch, schedule, delayed)"""
    two = [Launch((5, -1, 2), 0, 4, 4), Launch((7,), 0, 4, 4)]
    if ranks == 1:
        yield "8 rows, 3 blocks", [Launch(EVERY, 0, 4, 3)], 0, "rr", 1, False
        yield "3 rows and 1, 4 blocks", two, WRAP, "rr", 2, True
        yield "2 rows, 4 blocks in 2 groups, ring of 2", [Launch((1, 0), 0, 2, 4, 2, 2)], 0, "rr", 3, True
        yield "no live row, then one", [Launch((-1, -1), 0, 4, 3), Launch((-1, 4), 0, 2, 3)], 0, "rr", 0, False
    else:
        yield "8 rows, 3 blocks", [Launch(EVERY, 0, 4, 3)], 0, "rr", 1, False
        yield "3 rows and 1, 4 blocks", two, WRAP, "rr", 2, True
    for seed in range(1, seeds + 1):
        for late in (False, True):
            blocks = 3 + (seed + late) % 2
            rows = [(3,), (6, -1, 1), EVERY, (-1, 0)][(seed + 2 * late) % 4]
            launches = [Launch(rows, 0, 4, blocks)] if ranks == 1 else [Launch(rows, 0, 2, blocks)]
            if seed % 2 == 0:
                launches.append(Launch((2, 4), 0, 2, blocks))
            text = ", then ".join(f"{sum(r >= 0 for r in l.rows)} live of {len(l.rows)} rows" for l in launches)
            yield f"{text}, {blocks} blocks", launches, WRAP if seed == 2 else 0, "adv", seed * 977, late


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", type=pathlib.Path)
    parser.add_argument("one_rank", type=pathlib.Path)
    parser.add_argument("four_ranks", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=2, help="adversarial schedules of each kind")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 4])
    args = parser.parse_args()
    passed = failed = 0
    with opened_interpreter() as g:
        library = load(args.module)
        for ranks in args.ranks:
            layers = Layers(library, ranks, g, args.one_rank if ranks == 1 else args.four_ranks)
            title = f"{ranks} ranks, "
            results = layers.check(title, cases(ranks, args.seeds))
            if ranks == 1:
                results.append(layers.spoiled_is_seen(("output",)))
            layers.close()
            passed, failed = passed + sum(results), failed + len(results) - sum(results)
    return finish(passed, failed)


if __name__ == "__main__":
    sys.exit(main())

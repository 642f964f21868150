#!/usr/bin/env python3
"""Compiles test_gfx_toy.hip and executes it in the gfx950 interpreter, without a GPU.

Environment: HIPCXX, ROCM_LLVM_BIN; MONOLAYER_GFXI is the interpreter's folder (gfxi), else ../shared/tools/gfxi beside
the repository is taken; MONOLAYER_GFXI_LIBRARY may name a libgfxi.so built of it. Without the compiler or the interpreter
the test is skipped (exit code 77).
Each run goes through schedules: fair round robin, adversarial, and both with results delayed to their s_waitcnt.
"""
import argparse
import importlib.util
import operator
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORKERS, TILES, CHUNKS, EPOCH = 2, 4, 3, 0x1234567
CODES, SCALES = 8192, 512
CHUNK = CODES + SCALES
TILE_BYTES = (CHUNKS - 1) * CHUNK + CHUNK // 2
TILE_K = (CHUNKS - 1) * 1024 + 512
LDS = 1024 + 8 * 1024 + 4 * 9216
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
E2M1 += [-v for v in E2M1]


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(77)


def interpreter(folder, scratch, arch):
    """The interpreter's Python module, built and loaded from a copy in `scratch`."""
    copy = scratch / f"gfxi_{arch}"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.so", "*.o"))
    for path in [copy, *copy.iterdir()]:
        path.chmod(path.stat().st_mode | 0o200)
    script = copy / "run.py"
    script.write_text(script.read_text().replace("--mcpu=gfx950", f"--mcpu={arch}"))
    built = pathlib.Path(os.environ.get("MONOLAYER_GFXI_LIBRARY") or scratch / "libgfxi.so")
    if not built.exists():
        subprocess.run(["bash", copy / "build.sh", scratch], check=True)
        built = scratch / "libgfxi.so"
    shutil.copy(built, copy / "libgfxi.so")
    spec = importlib.util.spec_from_file_location(f"gfxi_{arch}", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # Newer disassemblers write lit(0x...) where a constant could be shorter than it is; the interpreter knows 0x... alone.
    objdump = copy / "objdump"
    objdump.write_text(f"""#!/bin/bash
set -o pipefail
"{os.environ["ROCM_LLVM_BIN"]}/llvm-objdump" "$@" | sed -E 's/\\blit\\((0x[0-9a-f]+)\\)/\\1/g'
""")
    objdump.chmod(0o755)
    module.OBJDUMP = str(objdump)
    return module


def arrange_e2m1(arch, word):
    if arch == "gfx950":
        return word
    return sum((word >> 4 * i & 15) << (8 * (i % 4) + 4 * (i // 4)) for i in range(8))


def arrange_e4m3(arch, codes):
    if arch == "gfx950":
        return codes
    out = bytearray(8)
    for i in range(8):
        out[i // 4 * 4 + (1, 3, 0, 2)[i % 4]] = codes[i]
    return bytes(out)


def bf16(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    assert bits & 0xffff == 0, value
    return bits >> 16


def e4m3(code):
    sign, exponent, mantissa = code >> 7, code >> 3 & 15, code & 7
    value = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return -value if sign else value


class Layer:
    """The toy layer's inputs and what must come out: all sums are exact in f32, whatever the order."""

    def __init__(self, arch):
        rng = random.Random(5)
        self.x = [[rng.randrange(-3, 4) for _ in range(TILE_K)] for _ in range(16)]
        self.x_bytes = b"".join(struct.pack(f"<{TILE_K}H", *map(bf16, map(float, column))) for column in self.x)
        weights, self.parts = bytearray(), []
        for _ in range(WORKERS * TILES):
            rows = [[] for _ in range(16)]
            for c in range(CHUNKS):
                waves = 8 if c + 1 < CHUNKS else 4
                codes = bytearray(waves * 1024)
                scales = bytes(rng.randrange(125, 129) for _ in range(waves * 4 * 16))
                for step in range(waves * 4):
                    for lane in range(64):
                        word = rng.getrandbits(32)
                        struct.pack_into("<I", codes, (step // 4 * 64 + lane) * 16 + step % 4 * 4,
                                         arrange_e2m1(arch, word))
                        row = lane % 16
                        factor = 2.0 ** (scales[step * 16 + row] - 127)
                        k = c * 1024 + step * 32 + lane // 16 * 8
                        rows[row].append((k, [E2M1[word >> 4 * i & 15] * factor for i in range(8)]))
                weights += codes + scales
            flat = [[w for _, eight in sorted(row, key=lambda p: p[0]) for w in eight] for row in rows]
            self.parts.append([[sum(map(operator.mul, flat[r], self.x[c])) for c in range(16)] for r in range(16)])
        self.weights = bytes(weights)
        assert len(self.weights) == WORKERS * TILES * TILE_BYTES

    def expected(self):
        out = b""
        for tile in range(TILES):
            for lane in range(64):
                out += struct.pack("<4f", *(sum(self.parts[b * TILES + tile][4 * (lane // 16) + r][lane % 16]
                                                for b in range(WORKERS)) for r in range(4)))
        for tile in range(TILES):
            out += struct.pack("<64I", *(sum((b * TILES + tile) * 1000 + lane for b in range(WORKERS))
                                         for lane in range(64)))
        return out

    def run(self, g, code, **schedule):
        poison = b"\xad\xde\xc0\x7f"
        weights, x = g.Buf(self.weights), g.Buf(self.x_bytes)
        slot = g.Buf(poison * (WORKERS * TILES * 256))
        words = g.Buf(struct.pack("<I", EPOCH - 1) * (WORKERS * TILES * 32))
        tagged = g.Buf(struct.pack("<II", 7, EPOCH - 1) * (WORKERS * TILES * 64))
        out = g.Buf(poison * (TILES * 256 + TILES * 64))
        control = g.Buf(struct.pack("<II", 0, EPOCH))
        packed = struct.pack("<7QI4x", *(b.addr for b in (weights, x, slot, words, tagged, out, control)), EPOCH)
        stats = g.launch(code, "toy_layer", (3,), (576,), [packed], dyn_lds=LDS, **schedule)
        assert out.bytes() == self.expected(), "wrong sums"
        assert control.bytes() == struct.pack("<II", 3, EPOCH + 1), f"control words {control.bytes().hex()}"
        return stats


def run_cases(g, code, arch, **schedule):
    rng = random.Random(11)
    words = [rng.getrandbits(32) for _ in range(64)]
    e2m1 = [[rng.getrandbits(32) for _ in range(64)] for _ in range(4)]
    e4m3_codes = []
    for lane in range(64):  # every code but the NaNs
        codes = [(lane * 8 + i) % 256 for i in range(8)]
        e4m3_codes.append(bytes(c & 0x80 | 0x7e if c & 0x7f == 0x7f else c for c in codes))
    data = struct.pack("<64I", *words)
    data += b"".join(struct.pack("<64I", *(arrange_e2m1(arch, w) for w in four)) for four in e2m1)
    data += b"".join(arrange_e4m3(arch, c) for c in e4m3_codes)
    source, out = g.Buf(data), g.Buf(nbytes=65536 + 8192)
    stats = g.launch(code, "toy_cases", (1,), (64,), [source, out], dyn_lds=8192, **schedule)
    got = out.bytes()

    odd = sum((w & 1) << lane for lane, w in enumerate(words))
    want = []  # [row][lane] of four words

    def put(function):
        want.append([tuple(v & 0xffffffff for v in function(lane)) for lane in range(64)])

    put(lambda l: (max(words), min(words), odd, odd >> 32))
    put(lambda l: (words[l ^ 1], words[l ^ 2], words[l ^ 8], words[l ^ 32]))
    put(lambda l: (words[l ^ 4], words[l ^ 16], words[l ^ 63], 1))
    for i in range(4):
        def wide(l, i=i):
            scale = 2.0 ** ((l * 4 + i) % 253 - 127)
            v = [bf16(E2M1[e2m1[i][l] >> 4 * j & 15] * scale) for j in range(8)]
            return [v[2 * j] | v[2 * j + 1] << 16 for j in range(4)]
        put(wide)

    def wide8(l):
        v = [bf16(e4m3(c)) for c in e4m3_codes[l]]
        return [v[2 * j] | v[2 * j + 1] << 16 for j in range(4)]
    put(wide8)
    bytes_, halves = bytes(w & 255 for w in words), [w & 0xffff for w in words]

    def two_halves(i):
        return halves[2 * i] | halves[2 * i + 1] << 16

    put(lambda l: (int.from_bytes(bytes_[l % 16 * 4:][:4], "little"), two_halves((l ^ 5) * 2 % 32),
                   two_halves((l ^ 5) * 2 % 32 + 1), words[l ^ 9]))
    put(lambda l: (words[l ^ 1], words[l ^ 1] + 3, 77, 0))
    put(lambda l: (words[l ^ 3], 3, l & ~1, words[l | 1]))
    put(lambda l: (two_halves(l // 2), words[l ^ 7], words[l & ~3], words[l | 3]))
    for row, lanes in enumerate(want):
        for lane, four in enumerate(lanes):
            seen = struct.unpack_from("<4I", got, (row * 64 + lane) * 16)
            assert seen == four, (f"row {row} lane {lane}: {' '.join(f'{v:08x}' for v in seen)}, "
                                  f"wanted {' '.join(f'{v:08x}' for v in four)}")
    tail = struct.unpack_from("<7I", got, 65536 + 4096)
    assert tail == (5, 0, 3, 0, 0, 0x1234, 1), tail
    return stats


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", nargs="+", default=["gfx950", "gfx942"])
    parser.add_argument("--seeds", type=int, default=6)
    args = parser.parse_args()
    folder = os.environ.get("MONOLAYER_GFXI") or ROOT.parent / "shared/tools/gfxi"
    if not (pathlib.Path(folder) / "run.py").is_file():
        skip(f"no interpreter in {folder}")
    if not os.environ.get("HIPCXX") or not os.environ.get("ROCM_LLVM_BIN"):
        skip("HIPCXX and ROCM_LLVM_BIN are not set")
    passed = failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for arch in args.arch:
            code_path = scratch / f"toy.{arch}.co"
            subprocess.run([os.environ["HIPCXX"], "-x", "hip", f"--offload-arch={arch}", "--offload-device-only",
                            "--no-gpu-bundle-output", "-O3", "-std=c++20", "-Wall", "-Wextra", "-I", ROOT / "include",
                            "-o", code_path, HERE / "test_gfx_toy.hip"], check=True)
            g = interpreter(folder, scratch, arch)
            code = g.CodeObject(str(code_path))
            layer = Layer(arch)
            runs = [(f"{arch} cases, {'delayed' if late else 'at once'}",
                     lambda late=late: run_cases(g, code, arch, sched="rr"), late) for late in (False, True)]
            for late in (False, True):
                for sched in ("rr", "adv"):
                    for seed in range(args.seeds if sched == "adv" else 2):
                        run = lambda sched=sched, seed=seed: layer.run(g, code, sched=sched, seed=seed * 977 + 1)
                        runs.append((f"{arch} layer, {sched} seed {seed}, {'delayed' if late else 'at once'}", run,
                                     late))
            for name, run, late in runs:
                g.gfxi_launch.__defaults__ = (3 if late else 1, 0)  # the interpreter reads --async at import only
                try:
                    stats = run()
                    passed += 1
                    print(f"ok      {name}: {stats.insts} wave instructions, {stats.exec_s:.2f} s")
                except (AssertionError, RuntimeError) as error:
                    failed += 1
                    print(f"FAILED  {name}: {error}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Executes whole layers as compiled for gfx950 in an interpreter of that machine's code, without a GPU.

A dense layer, a MoE layer and one that attends to the picks of the layer before, as one span and one by one, with
contexts below and beyond index_topk and rows that read each other's tokens. Every launch must leave the bits that the
simulator computes: the stream, the caches and the picks. See test_slices_interpreted.py for the schedules.

LIBRARY is layers_interpreted.cpp as a shared library, CODE the code object of its kernel. Environment: ROCM_LLVM_BIN;
MONOLAYER_GFXI is the interpreter's folder (gfxi), else ../shared/tools/gfxi beside the repository is taken. Without the
interpreter the test is skipped (exit code 77).
"""
import argparse
import pathlib
import sys

from test_slices_interpreted import Launch, Layers, WRAP, finish, load, opened_interpreter


def cases(seeds):
    """(name, launches, epoch, schedule, seed, delayed); rows are numbers of layers_interpreted.cpp"""
    yield "3 rows, span of 3 layers", [Launch((0, 2, 3), 0, 3, 4)], 0, "rr", 1, False
    yield "2 rows of 3, one by one", [Launch((1, -1, 0), first, 1, 3) for first in range(3)], WRAP, "rr", 2, True
    yield "the caller's list", [Launch((3, 0), 2, 1, 4)], 0, "rr", 3, False
    yield "2 neighbours, MoE and listed, 2 groups, ring of 2", [Launch((3, 2), 1, 2, 4, 2, 2)], 0, "rr", 4, True
    for seed in range(1, seeds + 1):
        rows = [(0, 3, 2), (4, -1), (2, 3, 4), (1, 0)][seed % 4]
        first, count = [(0, 3), (0, 2), (1, 2), (2, 1)][seed // 2 % 4]
        late = seed % 2 == 0
        yield (f"{sum(r >= 0 for r in rows)} live of {len(rows)} rows, layers {first} to {first + count - 1}",
               [Launch(rows, first, count, 3 + seed % 2)], 0, "adv", seed * 977, late)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", type=pathlib.Path)
    parser.add_argument("code", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=1, help="adversarial schedules")
    args = parser.parse_args()
    with opened_interpreter() as g:
        layers = Layers(load(args.module), 1, g, args.code)
        results = layers.check("", cases(args.seeds))
        results.append(layers.spoiled_is_seen(("output", "layer"), Launch((0, 1), 0, 1, 4)))
        layers.close()
    return finish(sum(results), len(results) - sum(results))


if __name__ == "__main__":
    sys.exit(main())

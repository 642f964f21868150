#!/usr/bin/env python3
"""Compiles a case that must not compile, and checks the words of the error.

A case begins with one or more lines
    // expect: some words of the diagnostic
As it stands it must fail, and each line's words must stand in what the compiler says (spaces compare
as one, source lines that the compiler quotes do not count). With -DMONOLAYER_FIXED, under which the case
puts its mistake right, it must compile: so it fails for the reason that it names and for no other.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile


def compiles(args, source, *more):
    command = [args.compiler, "-std=c++20", "-fsyntax-only", "-fno-diagnostics-show-caret",
               "-fdiagnostics-color=never", *[f"-I{d}" for d in args.include], *more, str(source)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", env={**os.environ, "LC_ALL": "C"}, check=False)
    return done.returncode == 0, done.stdout


def expectations(source):
    words = []
    for line in source.read_text(encoding="utf-8").splitlines():
        head, mark, rest = line.partition("// expect:")
        if head.strip() or not mark:
            break
        words.append(rest.strip())
    return words


def problems(args, source):
    """What is wrong with a case: an empty list where it fails as it should."""
    wanted = expectations(source)
    if not wanted or not all(wanted):
        return ["the file does not begin with '// expect: WORDS'"]
    found = []
    ok, said = compiles(args, source)
    if ok:
        found.append("it compiles, and must not")
    missing = [w for w in wanted if " ".join(w.split()) not in " ".join(said.split())]
    if missing and not ok:
        found += [f"the compiler did not say: {w}" for w in missing] + ["it said:\n" + said]
    ok, said = compiles(args, source, "-DMONOLAYER_FIXED")
    if not ok:
        found.append("with -DMONOLAYER_FIXED it must compile, but:\n" + said)
    return found


def self_test(args):
    wrong = "#ifndef MONOLAYER_FIXED\nstatic_assert(sizeof(int) == 3, \"ints have three bytes\");\n#endif\n"
    cases = {  # name: (text, words of the one problem that must be found; none where the case is good)
        "good": ("// expect: ints have three bytes\n" + wrong, None),
        "two_lines": ("// expect: ints have\n// expect: three   bytes\n" + wrong, None),
        "words_missing": ("// expect: ints have four bytes\n" + wrong, "did not say: ints have four bytes"),
        "second_words_missing": ("// expect: ints have\n// expect: nine bytes\n" + wrong, "did not say: nine bytes"),
        "only_in_quoted_source": ("// expect: /*note*/\n#ifndef MONOLAYER_FIXED\nint /*note*/ x = nothing;\n#endif\n",
                                  "did not say: /*note*/"),
        "compiles": ("// expect: anything\nint x;\n", "it compiles"),
        "fix_does_not_compile": ("// expect: three bytes\n" + wrong + "int x = nothing;\n", "MONOLAYER_FIXED it must"),
        "no_expectation": (wrong, "does not begin with"),
        "empty_expectation": ("// expect:\n" + wrong, "does not begin with"),
    }
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, (text, words) in cases.items():
            source = pathlib.Path(folder, name + ".cpp")
            source.write_text(text, encoding="utf-8")
            found = problems(args, source)
            good = not found if words is None else any(words in f for f in found)
            print(f"{'ok' if good else 'WRONG'}: {name}: {found[0].splitlines()[0] if found else 'accepted'}")
            failed += not good
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("-I", dest="include", action="append", default=[])
    parser.add_argument("--self-test", action="store_true", help="check that the driver goes red when it should")
    parser.add_argument("case", nargs="?", type=pathlib.Path)
    args = parser.parse_args()
    if args.self_test:
        return 1 if self_test(args) else 0
    if args.case is None:
        parser.error("no case was given")
    found = problems(args, args.case)
    for problem in found:
        print(f"{args.case.name}: {problem}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

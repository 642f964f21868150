"""Runs an example program and holds what it said against what was expected."""
import subprocess


class Checker:
    def __init__(self, program):
        self.program, self.passed, self.failed = program, 0, 0

    def run(self, *arguments):
        done = subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True, timeout=600)
        return done.returncode, done.stdout, done.stderr

    def expect(self, good, what, shown=""):
        if good:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAIL {what}\n{shown}")

    def refused(self, arguments, *texts):
        """The program says one line with all of these texts on stderr and nothing else, and exits with 2."""
        code, out, err = self.run(*arguments)
        shown = f"  exit status {code}\n  stdout: {out}\n  stderr: {err}"
        self.expect(code == 2, f"{arguments}: exit status", shown)
        self.expect(err.count("\n") == 1 and out == "", f"{arguments}: one line", shown)
        self.expect(": seen " in err and ", wanted " in err, f"{arguments}: what, seen, wanted", shown)
        for text in texts:
            self.expect(text in err, f"{arguments}: '{text}'", shown)

    def end(self):
        print(f"{self.passed} passed, {self.failed} failed")
        return 1 if self.failed or not self.passed else 0

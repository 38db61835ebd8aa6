# Runs one module of pyverbs' tests and prints a line for each test:
#     parity: {"name": ..., "outcome": "pass" | "fail" | "skip", "why": ...}
# and "parity: end" when all have run. tests/run_tests.py does the same, but
# loads every module, those of other vendors' devices too.
#
#     python3 runner.py DIRECTORY MODULE [--dev rxe0 ...]
import importlib
import json
import sys
import types
import unittest

directory, module = sys.argv[1:3]
del sys.argv[1:3]
sys.path.insert(0, directory)
package = types.ModuleType("tests")
package.__path__ = [directory]
sys.modules["tests"] = package
importlib.import_module("args_parser").parser.parse_args()


class Result(unittest.TestResult):
    def say(self, test, outcome, why=""):
        name = test.id().rpartition(".")[2]
        print("\nparity: " + json.dumps({"name": name, "outcome": outcome, "why": why}), flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.say(test, "pass")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.say(test, "fail", str(err[1]))

    def addError(self, test, err):
        super().addError(test, err)
        self.say(test, "fail", str(err[1]))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say(test, "skip", reason)


unittest.defaultTestLoader.loadTestsFromName("tests." + module).run(Result())
print("\nparity: end", flush=True)

# Runs modules of pyverbs' tests, each test in a process of its own: some that
# fail leave objects behind that crash Python when it drops them, and one that
# hangs is ended. It prints a line for each test:
#     pyverbs: {"module": ..., "name": ..., "outcome": "pass" | "fail" | "skip", "why": ...}
# and "pyverbs: end" when all have run.
#
#     python3 runner.py DIRECTORY MODULE,... [--dev rxe0 ...]
import importlib
import json
import os
import signal
import sys
import types
import unittest

LIMIT = 120  # seconds for a test

directory, modules = sys.argv[1:3]
del sys.argv[1:3]
sys.path.insert(0, directory)
package = types.ModuleType("tests")
package.__path__ = [directory]
sys.modules["tests"] = package
importlib.import_module("args_parser").parser.parse_args()
importlib.import_module("tests.utils")  # which the others import in a circle


class Result(unittest.TestResult):
    verdict = ("fail", "no verdict")

    def addSuccess(self, test):
        self.verdict = ("pass", "")

    def addFailure(self, test, err):
        self.verdict = ("fail", str(err[1]))

    addError = addFailure

    def addSkip(self, test, reason):
        self.verdict = ("skip", reason)


def each(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from each(test)
        else:
            yield test


def say(module, test, outcome, why):
    name = test.id().rpartition(".")[2]
    print("\npyverbs: " + json.dumps({"module": module, "name": name, "outcome": outcome, "why": why}), flush=True)


def run(module, test):
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        signal.alarm(LIMIT)
        result = Result()
        test.run(result)
        say(module, test, *result.verdict)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        os.killpg(child, signal.SIGKILL)  # what it has started
    except ProcessLookupError:
        pass
    if status == -signal.SIGALRM:
        say(module, test, "fail", f"it did not end within {LIMIT} s")
    elif status != 0:
        say(module, test, "fail", f"the process ended with {status}")


for module in modules.split(","):
    for test in each(unittest.defaultTestLoader.loadTestsFromName("tests." + module)):
        run(module, test)
print("\npyverbs: end", flush=True)

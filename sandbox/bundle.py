"""The supervisor's source, packed so that any image with a Python can run it.

Sent into the container at start: an image can never hold a supervisor of another version than the
judge's.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

# In the order in which they import one another.
MODULES = (
    "wire", "large_values", "hashing", "library_values", "values", "kernel", "processes", "meter",
    "isolation", "namespaces", "answers", "candidate", "zygote", "talk", "watch", "supervisor",
)  # fmt: skip
# Only where test code is run: they load more of the standard library than a worker should hold.
TEST_MODULES = ("stubs", "link", "pytest_shim", "discovery", "tester")

BOOTSTRAP = """\
import json, os, struct, sys, types

def read(length):
    data = b""
    while len(data) < length:
        chunk = os.read(0, length - len(data))
        if not chunk:
            raise SystemExit("the channel closed before the supervisor came")
        data += chunk
    return data

for name in ("sandbox", "sandbox.container"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
sys.modules["sandbox"].container = package = sys.modules["sandbox.container"]
for name, source in json.loads(read(*struct.unpack(">I", read(4)))):
    module = types.ModuleType("sandbox.container." + name)
    sys.modules[module.__name__] = module
    setattr(package, name, module)
    exec(compile(source, "<" + module.__name__ + ">", "exec"), module.__dict__)
package.supervisor.main()
"""

COMMAND = ("python3", "-sPB", "-c", BOOTSTRAP)


@cache
def modules(*, for_tests: bool) -> tuple[tuple[str, str], ...]:
    """Name and source of every module, in the order in which to run them.

    Args:
        for_tests: Whether the container is to run test code.
    """
    folder = resources.files("sandbox.container")
    names = (*MODULES[:-1], *TEST_MODULES, MODULES[-1]) if for_tests else MODULES
    return tuple((name, folder.joinpath(f"{name}.py").read_text("utf-8")) for name in names)

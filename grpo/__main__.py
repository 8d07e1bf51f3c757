"""The start of the command `verigrad`, before any import that a foreign package could break."""

from __future__ import annotations

import sys

from grpo.origins import find_conflict


def main() -> int:
    """Run the command line, unless Python would import other packages than ours."""
    conflict = find_conflict()
    if conflict is not None:
        print(f"verigrad: {conflict}", file=sys.stderr)
        return 2
    from grpo.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.faults`: the tests of the table, for pytest; `--page`: the table of docs/faults.md."""

import sys

from tests.faults.table import named, page

if __name__ == "__main__":
    sys.stdout.write(page() if sys.argv[1:] == ["--page"] else "\n".join(named()) + "\n")

#!/usr/bin/env python3
"""Prints the closing line of tools/test, `N passed, N failed[, N skipped]`, from the results that ctest wrote, and
before it the names of the tests that failed, and of those that were skipped with the reasons they gave. Exit code 1 if
any failed or none passed.

    summary.py RESULTS.xml
"""

import pathlib
import re
import sys
import xml.etree.ElementTree as xml


def reason_of(case):
    """What a GoogleTest or a unittest that skips itself printed."""
    output = case.findtext("system-out") or ""
    said = re.search(r"\.cpp:\d+: Skipped\n(.+)", output) or re.search(r"\.\.\. skipped ['\"](.+)['\"]", output)
    return said.group(1).strip() if said else "no reason given"


def main():
    results = pathlib.Path(sys.argv[1])
    passed, failed, skipped = [], [], []
    if results.is_file():
        for case in xml.parse(results).getroot().iter("testcase"):
            reason = case.find("skipped")
            # A test that could not start is `notrun` too: only one that says itself that it skips is skipped.
            if case.get("status") == "run":
                passed.append(case)
            elif case.get("status") == "notrun" and reason is not None and "SKIP_" in reason.get("message", ""):
                skipped.append(case)
            elif case.get("status") != "disabled":
                failed.append(case)
    for case in skipped:
        print(f"skipped: {case.get('name')}: {reason_of(case)}")
    for case in failed:
        print(f"failed: {case.get('name')}")
    print(f"{len(passed)} passed, {len(failed)} failed" + (f", {len(skipped)} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Verdicts as JUnit XML, which build servers show: a test case for each row and sender."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence

from verus.report.printable import escaped
from verus.suites.judge import MISSED, NOT_APPLICABLE, PASSED, Verdict
from verus.suites.show import told


def to_xml(verdicts: Sequence[Verdict]) -> bytes:
    """The whole file. Rows that fail the command are failures; rows shown for comparison, or not run, are skipped."""
    root = ET.Element("testsuites")
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.verdict != NOT_APPLICABLE or verdict.left_out:
            groups.setdefault((verdict.scheme, verdict.suite), []).append(verdict)
    for (scheme, suite), rows in groups.items():
        failed = sum(row.failed for row in rows)
        skipped = sum(not row.failed and row.verdict != PASSED for row in rows)
        counts = {"tests": str(len(rows)), "failures": str(failed), "errors": "0", "skipped": str(skipped)}
        element = ET.SubElement(root, "testsuite", {"name": escaped(f"{scheme} {suite}"), **counts})
        for row in rows:
            names = {"classname": escaped(f"{scheme}.{suite}"), "name": escaped(row.row)}
            case = ET.SubElement(element, "testcase", names)
            if row.failed:
                ET.SubElement(case, "failure", {"message": escaped(told(row))}).text = escaped(row.about)
            elif row.verdict == MISSED:
                ET.SubElement(case, "skipped", {"message": escaped(f"missed, and decides nothing: {told(row)}")})
            elif row.verdict != PASSED:
                ET.SubElement(case, "skipped", {"message": escaped(told(row))})
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"

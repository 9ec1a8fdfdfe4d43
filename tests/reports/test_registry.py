"""The public bug reports that are replayed here, and that none of them is left out.

A report may be declared not applicable by a decision record with a line `Reports not applicable: D00, D00`.
"""

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
DECISIONS = HERE.parents[1] / "docs" / "decisions"
AT_MOST_NOT_APPLICABLE = 3

REPORTS = {
    "D01": ("xorbitsai/xagent#1358", "nginx/nginx#1505"),
    "D02": ("sysid/sse-starlette#173",),
    "D03": ("agentscope-ai/agentscope#1252",),
    "D04": ("google/adk-python#4029", "google/adk-python#6924"),
    "D05": ("OpenHands/OpenHands#8818",),
    "D06": ("anomalyco/opencode#13947",),
    "D07": ("OpenHands/OpenHands#12197",),
    "D08": ("langchain-ai/langgraph#8112",),
    "D09": ("google/adk-python#454",),
    "D10": ("commanded/eventstore#3",),
    "D11": ("google/adk-python#4751",),
    "D12": ("Alishahryar1/free-claude-code#1618",),
    "D13": ("sundi133/wb-red-team#204",),
    "D14": ("ag-ui-protocol/ag-ui#1892",),
    "D15": ("langgenius/dify#36996",),
    "D16": ("jmfederico/pi-web#222",),
    "D17": ("Soju06/codex-lb#1010", "florimondmanca/httpx-sse#34"),
    "D18": ("fastapi/fastapi#15187",),
    "D19": ("coder/coder#22637",),
    "D20": ("modelcontextprotocol/python-sdk#3385",),
    "D21": ("Git-on-my-level/agent-nexus#193",),
    "D22": ("anomalyco/opencode#15645",),
    "D23": ("aio-libs/aiohttp#1367",),
    "D24": ("aegra/aegra#423",),
    "D25": ("polarsource/polar#3100", "sysid/sse-starlette#124"),
    "D26": ("bytedance/deer-flow#1087",),
    "D27": ("lbedner/aegis-stack#516",),
    "D28": ("MagicStack/asyncpg#1307",),
    "D29": ("langgenius/dify#39685",),
    "D30": ("NousResearch/hermes-agent#5958",),
    "D31": ("OpenHands/software-agent-sdk#1880",),
    "D32": ("aegra/aegra#548",),
    "D33": ("MagicStack/asyncpg#519",),
    "D34": ("awslabs/cli-agent-orchestrator#533",),
}
"""Where each was reported; pull requests are numbered like issues."""

_NAME = re.compile(r"test_d(\d\d)_\w+")


def docstrings_of_tests() -> dict[str, list[str]]:
    """The docstrings of each report's tests."""
    found: dict[str, list[str]] = {}
    for file in sorted(HERE.glob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
                match := _NAME.fullmatch(node.name)
            ):
                found.setdefault(f"D{match[1]}", []).append(ast.get_docstring(node) or "")
    return found


def not_applicable() -> set[str]:
    """The reports that a decision record declares so."""
    lines = (
        line
        for record in DECISIONS.glob("*.md")
        for line in record.read_text().splitlines()
        if line.startswith("Reports not applicable:")
    )
    return {report for line in lines for report in re.findall(r"D\d\d", line)}


def test_each_report_has_a_test_or_a_decision_that_it_does_not_apply() -> None:
    declared = not_applicable()
    assert set(REPORTS) == {f"D{number:02}" for number in range(1, 35)}
    assert set(docstrings_of_tests()) | declared == set(REPORTS)
    assert len(declared) <= AT_MOST_NOT_APPLICABLE


def test_each_reports_tests_name_where_it_was_reported() -> None:
    unnamed = [
        (report, where)
        for report, docstrings in docstrings_of_tests().items()
        for where in REPORTS[report]
        if not any(where in docstring for docstring in docstrings)
    ]
    assert unnamed == []

"""The README's table of settings, made from the settings themselves: `python -m tests.docs.settings_table`."""

import re
from pathlib import Path

from app.settings import Settings

README = Path(__file__).parent.parent.parent / "README.md"
_PLACE = re.compile(r"(<!-- settings -->\n).*(<!-- /settings -->)", re.DOTALL)


def table() -> str:
    """The table in Markdown."""
    rows = ["| variable | default | what it does |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = "" if field.default in (None, "", {}) else f"`{str(field.default).lower()}`"
        rows.append(f"| `TARKO_{name.upper()}` | {default} | {field.description} |")
    return "\n".join(rows) + "\n"


def with_table(readme: str) -> str:
    """The README with the table as it should be."""
    return _PLACE.sub(lambda match: match[1] + table() + match[2], readme)


if __name__ == "__main__":
    README.write_text(with_table(README.read_text()))

"""Writes the clients' types from what the server publishes: the schemas of its OpenAPI document and of its events.

`python -m clients.generate` writes both files anew; a test says when that is due. One walk over the schemas, two
spellings: TypeScript interfaces and Python's TypedDicts. Only the keywords that our schemas use are understood; any
other is an error, never a guess.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic.json_schema import JsonSchemaMode, models_json_schema

from app.dialects.tarko import messages
from app.dialects.tarko.schema import event_schema

HERE = Path(__file__).parent
TYPESCRIPT = HERE / "typescript" / "src" / "generated.ts"
PYTHON = HERE / "python" / "tarko_client" / "shapes.py"

ASKED: tuple[type[messages.Message], ...] = (
    messages.CreateSession,
    messages.UpdateSession,
    messages.TurnOptions,
)
ANSWERED = (
    messages.Created,
    messages.SessionItem,
    messages.Queue,
    messages.AbortReceipt,
)

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an object: its type is spelled already."""

    name: str
    spelled: str
    is_required: bool
    meaning: str


class Language(Protocol):
    """How a language spells a schema."""

    primitives: ClassVar[dict[str, str]]

    def literals(self, values: list[str]) -> str: ...
    def list_of(self, item: str) -> str: ...
    def object(self, name: str, meaning: str, fields: list[Field]) -> str: ...


class TypeScript:
    """Interfaces."""

    primitives: ClassVar[dict[str, str]] = {
        "string": "string",
        "integer": "number",
        "number": "number",
        "boolean": "boolean",
        "null": "null",
        "object": "Record<string, unknown>",
        "any": "unknown",
    }

    def literals(self, values: list[str]) -> str:
        return " | ".join(f'"{value}"' for value in values)

    def list_of(self, item: str) -> str:
        return f"({item})[]" if " " in item else f"{item}[]"

    def object(self, name: str, meaning: str, fields: list[Field]) -> str:
        lines = [f"/** {meaning} */", f"export interface {name} {{"]
        for field in fields:
            if field.meaning:
                lines.append(f"  /** {field.meaning} */")
            lines.append(f"  {field.name}{'' if field.is_required else '?'}: {field.spelled};")
        return "\n".join([*lines, "}"])


class Python:
    """TypedDicts."""

    primitives: ClassVar[dict[str, str]] = {
        "string": "str",
        "integer": "int",
        "number": "float",
        "boolean": "bool",
        "null": "None",
        "object": "dict[str, Any]",
        "any": "Any",
    }

    def literals(self, values: list[str]) -> str:
        spelled = ", ".join(f'"{value}"' for value in values)
        return f"Literal[{spelled}]"

    def list_of(self, item: str) -> str:
        return f"list[{item}]"

    def object(self, name: str, meaning: str, fields: list[Field]) -> str:
        lines = [f"class {name}(TypedDict):", f'    """{meaning}"""', ""]
        for field in fields:
            spelled = field.spelled if field.is_required else f"NotRequired[{field.spelled}]"
            lines.append(f"    {field.name}: {spelled}")
            if field.meaning:
                lines.append(f'    """{field.meaning}"""')
        return "\n".join(lines)


def spell(schema: Schema, language: Language) -> str:
    """A schema as a type. Raises ValueError for what is not understood."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema or "enum" in schema:
        return language.literals(schema.get("enum", [schema.get("const")]))
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(spell(option, language) for option in schema["anyOf"]))
    kind = schema.get("type", "any")
    if kind == "array":
        return language.list_of(spell(schema["items"], language))
    if kind not in language.primitives or "properties" in schema:
        raise ValueError(f"There is no spelling for {schema}.")
    return language.primitives[kind]


def objects() -> dict[str, Schema]:
    """Every object that the clients have a type for, by name; those that others name come first."""
    asked: list[tuple[Any, JsonSchemaMode]] = [(each, "validation") for each in ASKED]
    answered: list[tuple[Any, JsonSchemaMode]] = [(each, "serialization") for each in ANSWERED]
    _, published = models_json_schema([*asked, *answered])
    found: dict[str, Schema] = published["$defs"] | event_schema()["$defs"]
    graph = {name: set(_named(schema)) for name, schema in found.items()}
    return {name: found[name] for name in TopologicalSorter(graph).static_order()}


def _named(schema: Any) -> Iterator[str]:
    """The objects that a schema names."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield spell(schema, Python())
        for value in schema.values():
            yield from _named(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _named(value)


def spell_objects(language: Language) -> Iterator[str]:
    """Each object as a declaration."""
    for name, schema in objects().items():
        required = schema.get("required", [])
        fields = [
            Field(key, spell(value, language), key in required, value.get("description", ""))
            for key, value in schema["properties"].items()
        ]
        yield language.object(name, " ".join(schema["description"].split()), fields)


def event_types() -> dict[str, str]:
    """The types of the server's own events, and the object that the data of each is."""
    variants = (variant["properties"] for variant in event_schema()["oneOf"])
    return {
        each["type"]["const"]: spell(each["data"], Python()) for each in variants if "const" in each["type"]
    }


def typescript() -> str:
    """The file for TypeScript."""
    known = "\n".join(f"  {kind}: {data};" for kind, data in event_types().items())
    parts = [
        "// Generated by clients/generate.py from the server's schemas. Do not edit.",
        *spell_objects(TypeScript()),
        f"/** The data of each type of event that the server itself writes. */\nexport interface EventData {{\n{known}\n}}",
    ]
    return "\n\n".join(parts) + "\n"


def python() -> str:
    """The file for Python."""
    known = " | ".join(dict.fromkeys(event_types().values()))
    parts = [
        '"""What the protocol\'s objects hold. Generated by clients/generate.py from the server\'s schemas: do not edit."""',
        "from typing import Any, Literal, NotRequired, TypedDict",
        "\n\n\n".join(spell_objects(Python())),
        f'EventData = (\n    {known}\n)\n"""The data of the events that the server itself writes."""'.replace(
            " | ", "\n    | "
        ),
    ]
    return "\n\n".join(parts[:2]) + "\n\n\n" + "\n\n\n".join(parts[2:]) + "\n"


def main() -> None:
    """Write both files."""
    TYPESCRIPT.write_text(typescript())
    PYTHON.write_text(python())


if __name__ == "__main__":
    main()

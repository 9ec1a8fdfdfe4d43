import pytest

from clients import generate


@pytest.mark.parametrize("file", ["TYPESCRIPT", "PYTHON"])
def test_the_types_are_those_of_the_servers_schemas(file: str) -> None:
    now = {"TYPESCRIPT": generate.typescript, "PYTHON": generate.python}[file]()
    assert getattr(generate, file).read_text() == now, "run `python -m clients.generate`"


def test_a_schema_that_is_not_understood_is_an_error() -> None:
    for schema in ({"type": "unheard-of"}, {"type": "object", "properties": {}}):
        with pytest.raises(ValueError, match="no spelling"):
            generate.spell(schema, generate.TypeScript())

"""What agents let people choose: declarations, choices, and what becomes of choices that are not allowed any more."""

from typing import Any

import pytest

from app.agents.contract import Agent
from app.agents.demo import DemoAgent
from app.agents.options import Options, options_of
from app.errors import AgentLoadError, BadRequest

SMALL = {"id": "small", "provider": "acme", "displayName": "Small"}
LARGE = {"id": "large", "provider": "acme", "displayName": "large"}
SCHEMA: dict[str, Any] = {
    "properties": {
        "deep": {"type": "boolean", "default": False},
        "style": {"type": "string", "enum": ["short", "long"], "default": "long"},
        "name": {"type": "string"},
        "heat": {"type": "number", "default": 0.5},
        "tries": {"type": "integer", "enum": [1, 2]},
    }
}


class Declaring:
    invoke = DemoAgent.invoke

    def __init__(self, models: Any, schema: Any) -> None:
        self.allowed_models = models
        self.settings_schema = schema


def options(models: Any = None, schema: Any = None) -> Options:
    return options_of(Declaring(models, schema))


@pytest.fixture
def declared() -> Options:
    return options([SMALL, {"id": "large", "provider": "acme"}, SMALL], SCHEMA)


def test_an_agent_that_declares_nothing_has_nothing_to_choose() -> None:
    class Plain:
        invoke = DemoAgent.invoke

    agent: Agent = Plain()
    plain = options_of(agent)
    assert plain == Options()
    assert plain.model({"modelConfig": SMALL}) is None
    assert plain.settings({"runtimeSettings": {"deep": True}}) == {}


def test_models_are_told_once_each_the_first_one_is_the_default(declared: Options) -> None:
    assert declared.models == (SMALL, LARGE)
    assert declared.model({}) == SMALL


@pytest.mark.parametrize(
    "kept", [None, "large", {}, {"id": "gone"}, {"id": "large", "provider": "other"}, {"id": ["large"]}]
)
def test_a_kept_model_that_is_not_allowed_counts_as_not_chosen(declared: Options, kept: Any) -> None:
    assert declared.model({"modelConfig": kept}) == SMALL


@pytest.mark.parametrize("provider", [None, "acme"])
def test_a_chosen_model_is_kept_as_it_was_declared(declared: Options, provider: str | None) -> None:
    kept = declared.choosing_model("large", provider)
    assert kept == {"modelConfig": LARGE}
    assert declared.model(kept) == LARGE


@pytest.mark.parametrize(("model", "provider"), [("huge", None), ("large", "other"), ("", None)])
def test_a_model_that_is_not_allowed_is_refused_with_those_that_are(
    declared: Options, model: str, provider: str | None
) -> None:
    with pytest.raises(BadRequest, match="does not allow the model") as refused:
        declared.choosing_model(model, provider)
    assert refused.value.code == "unknown_model"
    assert refused.value.details == {"models": [SMALL, LARGE]}


def test_settings_that_were_not_chosen_have_their_defaults(declared: Options) -> None:
    assert declared.settings({}) == {"deep": False, "style": "long", "heat": 0.5}


def test_chosen_settings_replace_all_that_were_chosen_before(declared: Options) -> None:
    kept = declared.choosing_settings({"deep": True, "heat": 2, "tries": 2, "name": "é"})
    assert declared.settings(kept) == {"deep": True, "style": "long", "heat": 2, "tries": 2, "name": "é"}
    assert declared.settings(kept | declared.choosing_settings({"style": "short"}))["deep"] is False


def test_a_kept_setting_that_is_not_valid_any_more_counts_as_not_chosen(declared: Options) -> None:
    kept = {"runtimeSettings": {"deep": 1, "style": "medium", "old": True, "name": None, "heat": 3}}
    assert declared.settings(kept) == {"deep": False, "style": "long", "heat": 3}
    assert declared.settings({"runtimeSettings": [1]}) == declared.settings({})


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"deep": 1}, "deep must be true or false, not a number"),
        ({"deep": "true"}, "deep must be true or false, not text"),
        ({"style": "medium"}, "style must be one of short, long"),
        ({"style": True}, "style must be text, not true"),
        ({"name": None}, "name must be text, not null"),
        ({"name": ["x"]}, "name must be text, not an array"),
        ({"heat": {}}, "heat must be a finite number, not an object"),
        ({"heat": True}, "heat must be a finite number, not true"),
        ({"heat": float("inf")}, "heat must be a finite number, not inf"),
        ({"tries": 1.0}, "tries must be a whole number, not 1.0"),
        ({"tries": 10**400}, "tries must be one of 1, 2"),
        ({"depth": 1}, "depth is not a setting of this agent"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(declared: Options, values: Any, problem: str) -> None:
    with pytest.raises(BadRequest) as refused:
        declared.choosing_settings({"deep": True} | values)
    assert problem in str(refused.value)
    assert refused.value.code == "bad_settings"
    assert refused.value.details is not None
    [told] = refused.value.details["problems"]
    assert f"{told['field']} {told['problem']}" == problem


def test_every_wrong_setting_is_told_but_no_more_than_a_hundred(declared: Options) -> None:
    with pytest.raises(BadRequest) as refused:
        declared.choosing_settings({f"x{n}": n for n in range(1000)})
    assert refused.value.details is not None
    assert len(refused.value.details["problems"]) == 100
    assert len(str(refused.value)) < 300


def test_a_schema_is_an_object_whatever_it_says_itself(declared: Options) -> None:
    assert declared.schema == {**SCHEMA, "type": "object"}


@pytest.mark.parametrize(
    "models",
    [
        "small",
        {"id": "small"},
        [{"id": "small"}],
        [3],
        [SMALL, {**SMALL, "id": " "}],
        [{**SMALL, "displayName": 3}],
        3,
    ],
)
def test_models_that_are_not_well_formed_are_refused_at_start(models: Any) -> None:
    with pytest.raises(AgentLoadError, match="allowed_models"):
        options(models)


@pytest.mark.parametrize(
    "schema",
    [
        3,
        {},
        {"properties": []},
        {"properties": {"x": 3}},
        {"properties": {3: {"type": "string"}}},
        {"properties": {"x": {"type": "array"}}},
        {"properties": {"x": {}}},
        {"properties": {"x": {"type": "string", "enum": []}}},
        {"properties": {"x": {"type": "string", "enum": "ab"}}},
        {"properties": {"x": {"type": "string", "enum": ["a", 3]}}},
        {"properties": {"x": {"type": "string", "enum": ["a"], "default": "b"}}},
        {"properties": {"x": {"type": "boolean", "default": 0}}},
    ],
)
def test_a_schema_that_is_not_well_formed_is_refused_at_start(schema: Any) -> None:
    with pytest.raises(AgentLoadError, match="settings_schema"):
        options(None, schema)

"""What an agent lets people choose, in a session: one of its models, and the values of a few settings.

An agent declares it in two optional attributes: `allowed_models`, a list of `Model`, the default first; and
`settings_schema`, an object like JSON Schema's whose `properties` are booleans, strings or numbers. Both are checked
once, when the agent is served. Choices are kept with the session and reach the agent in its scope; what was kept and
is not allowed any more, because the agent has changed, counts as not chosen.

Source: Tarko's runtime settings and `POST /sessions/model`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from app.agents.contract import Agent, Json, Model
from app.errors import AgentLoadError, BadRequest

Attributes: TypeAlias = Mapping[str, Any]
"""What is kept with a session."""

MODEL = "modelConfig"
SETTINGS = "runtimeSettings"

_TYPES = {
    "boolean": "true or false",
    "string": "text",
    "number": "a finite number",
    "integer": "a whole number",
}


@dataclass(frozen=True, slots=True)
class Options:
    """An agent's declaration. `schema` is as it was declared, empty without settings."""

    models: tuple[Model, ...] = ()
    schema: Mapping[str, Any] | None = None

    @property
    def properties(self) -> Mapping[str, Mapping[str, Any]]:
        """The settings by name."""
        return {} if self.schema is None else self.schema["properties"]

    def model(self, attributes: Attributes) -> Model | None:
        """The model of a session: the chosen one, else the default; None when the agent declares none."""
        chosen = attributes.get(MODEL)
        if isinstance(chosen, Mapping):
            for model in self.models:
                if _is_named(model, chosen.get("id"), chosen.get("provider")):
                    return model
        return self.models[0] if self.models else None

    def settings(self, attributes: Attributes) -> dict[str, Json]:
        """The settings of a session: each as it was chosen, else its default; those with neither are absent."""
        chosen = attributes.get(SETTINGS)
        kept = chosen if isinstance(chosen, Mapping) else {}
        found: dict[str, Json] = {}
        for name, described in self.properties.items():
            if name in kept and _problem(described, kept[name]) is None:
                found[name] = kept[name]
            elif "default" in described:
                found[name] = described["default"]
        return found

    def choosing_model(self, model_id: str, provider: str | None) -> dict[str, Any]:
        """The attributes that choose a model.

        Raises `BadRequest` (`unknown_model`) for one that the agent does not allow.
        """
        for model in self.models:
            if _is_named(model, model_id, provider):
                return {MODEL: dict(model)}
        allowed = [dict(model) for model in self.models]
        shown = model_id if provider is None else f"{provider}/{model_id}"
        raise BadRequest(
            f"The agent does not allow the model {shown[:200]!r}.",
            code="unknown_model",
            details={"models": allowed},
        )

    def choosing_settings(self, values: Mapping[str, Json]) -> dict[str, Any]:
        """The attributes that choose these settings, instead of all that were chosen before.

        Raises `BadRequest` (`bad_settings`) that names each unknown setting and each value of a wrong type.
        """
        problems = list(self._problems(values))
        if problems:
            told = "; ".join(f"{problem['field']} {problem['problem']}" for problem in problems[:3])
            raise BadRequest(
                f"The settings can't be taken: {told}.", code="bad_settings", details={"problems": problems}
            )
        return {SETTINGS: dict(values)}

    def _problems(self, values: Mapping[str, Json]) -> Iterator[dict[str, str]]:
        for name, value in list(values.items())[:100]:
            described = self.properties.get(name)
            if described is None:
                yield {"field": name[:200], "problem": "is not a setting of this agent"}
            elif (problem := _problem(described, value)) is not None:
                yield {"field": name, "problem": problem}


def options_of(agent: Agent) -> Options:
    """What the agent declares. Raises `AgentLoadError` when the declaration is not well formed."""
    return Options(
        tuple(_models(getattr(agent, "allowed_models", None) or ())),
        _schema(getattr(agent, "settings_schema", None)),
    )


def _is_named(model: Model, model_id: object, provider: object) -> bool:
    return model["id"] == model_id and provider in (None, model["provider"])


def _problem(described: Mapping[str, Any], value: object) -> str | None:
    """Why the value is none of this setting."""
    kind = described["type"]
    if not _is_of(kind, value):
        return f"must be {_TYPES[kind]}, not {_kind_of(value)}"
    if "enum" in described and value not in described["enum"]:
        return f"must be one of {', '.join(map(str, described['enum']))}"
    return None


def _is_of(kind: str, value: object) -> bool:
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "string":
        return isinstance(value, str)
    if isinstance(value, float):
        return kind == "number" and math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _kind_of(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    names = {str: "text", int: "a number", float: str(value), list: "an array"}
    return "null" if value is None else names.get(type(value), "an object")


def _models(declared: object) -> Iterator[Model]:
    if not isinstance(declared, Sequence) or isinstance(declared, str):
        raise AgentLoadError(f"`allowed_models` must be a list of models, not {_kind_of(declared)}")
    known: set[tuple[str, str]] = set()
    for number, model in enumerate(declared):
        if not isinstance(model, Mapping) or not all(_is_name(model.get(key)) for key in ("id", "provider")):
            raise AgentLoadError(
                f"`allowed_models`: model {number} needs an `id` and a `provider`, both text"
            )
        shown = model.get("displayName", model["id"])
        if not _is_name(shown):
            raise AgentLoadError(f"`allowed_models`: the `displayName` of model {number} must be text")
        if (model["provider"], model["id"]) not in known:
            known.add((model["provider"], model["id"]))
            yield {"id": model["id"], "provider": model["provider"], "displayName": shown}


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _schema(declared: object) -> Mapping[str, Any] | None:
    if declared is None:
        return None
    properties = declared.get("properties") if isinstance(declared, Mapping) else None
    if not isinstance(properties, Mapping):
        raise AgentLoadError("`settings_schema` must be an object with `properties`, like JSON Schema's")
    for name, described in properties.items():
        _check_setting(name, described)
    return {**declared, "type": "object"}  # type: ignore[dict-item]  # it is a Mapping, as `properties` shows


def _check_setting(name: object, described: object) -> None:
    if not _is_name(name) or not isinstance(described, Mapping):
        raise AgentLoadError(f"`settings_schema`: {name!r} must be described by an object")
    if described.get("type") not in [*_TYPES]:
        raise AgentLoadError(f"`settings_schema`: the type of {name!r} must be one of {', '.join(_TYPES)}")
    if "enum" in described and not (isinstance(described["enum"], list) and described["enum"]):
        raise AgentLoadError(f"`settings_schema`: the `enum` of {name!r} must be a list that is not empty")
    for value in [*described.get("enum", []), *([described["default"]] if "default" in described else [])]:
        if (problem := _problem(described, value)) is not None:
            raise AgentLoadError(f"`settings_schema`: {value!r} of {name!r} {problem}")

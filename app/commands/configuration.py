"""The settings of a command: from the environment, overruled by flags. A wrong one is told by name, never by value."""

from typing import Any

from pydantic import ValidationError
from pydantic_settings import SettingsError

from app.errors import ConfigurationError
from app.settings import Settings


def load_settings(**flags: Any) -> Settings:
    """The settings; a flag that is None was not given. Raises ConfigurationError that names what is wrong."""
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise ConfigurationError(_told(error)) from None
    except SettingsError as error:
        # Its message names the field, its cause quotes the value.
        raise ConfigurationError(f"A setting is not the JSON that it must be: {error}") from None


def _told(error: ValidationError) -> str:
    """Without the values: one of them may be a token."""
    wrong = (
        f"TARKO_{'_'.join(str(part) for part in each['loc']).upper()}: {each['msg']}"
        for each in error.errors(include_input=False, include_url=False, include_context=False)
    )
    return "; ".join(wrong)

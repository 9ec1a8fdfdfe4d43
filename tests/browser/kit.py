"""What every browser test imports: Playwright's names, or a loud skip where it is not installed."""

import os
from typing import NoReturn

import pytest

from tests.conftest import REQUIRE_ALL


def unable(missing: str) -> NoReturn:
    """Skip, saying why; fail where everything is required."""
    if os.environ.get(REQUIRE_ALL) == "1":
        pytest.fail(f"{REQUIRE_ALL}=1, but {missing}", pytrace=False)
    pytest.skip(f"NOT TESTED in a browser: {missing}", allow_module_level=True)


try:
    from playwright.async_api import (
        Browser,
        BrowserContext,
        Locator,
        Page,
        Response,
        Route,
        async_playwright,
    )
    from playwright.async_api import expect as _expect
except ImportError:
    unable("the package playwright is not installed")

expect = _expect
expect.set_options(timeout=60_000)

__all__ = [
    "Browser",
    "BrowserContext",
    "Locator",
    "Page",
    "Response",
    "Route",
    "async_playwright",
    "expect",
    "unable",
]

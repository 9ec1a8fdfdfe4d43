"""Puts the built console into the wheel, so that who installs it needs no Node.

Builds it when it was not built, with the machine's Node or with that of the Python package, which is then required of
the build. An editable install serves `web/dist`, which `make` builds.
"""

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ConsoleHook(BuildHookInterface):  # type: ignore[type-arg]
    """The hook that the build calls."""

    PLUGIN_NAME = "console"

    @property
    def _web(self) -> Path:
        return Path(self.root) / "web"

    @property
    def _is_built(self) -> bool:
        return (self._web / "dist" / "index.html").is_file()

    def dependencies(self) -> list[str]:
        """The Node of the Python package, where the machine has none that is new enough."""
        if self._is_built:
            return []
        builder = runpy.run_path(str(self._web / "build.py"))
        return [] if builder["machines_node"]() else [builder["NODE_PACKAGE"]]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Raises when no Node can be had: a wheel without its console is none."""
        if version == "editable":
            return
        if not self._is_built:
            builder = runpy.run_path(str(self._web / "build.py"))
            if builder["main"]("build") != 0:
                raise RuntimeError("The console could not be built; see above.")
        build_data["force_include"][str(self._web / "dist")] = "app/_web"

"""Why a drill could not be done at all, as opposed to what it has found."""

from app.errors import TarkoError


class DrillFailed(TarkoError):
    """The drill could not begin or go on; the message says what was missing."""

    code = "drill_failed"

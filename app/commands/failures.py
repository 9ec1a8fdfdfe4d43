"""Why a command could not do what it was told. Each becomes one line on stderr and exit code 1, never a traceback."""

from app.errors import TarkoError


class CommandFailed(TarkoError):
    """The command could not do its work; the message says why and what to do."""

    code = "command_failed"


class CannotWrite(CommandFailed):
    """The file that was asked for cannot be written."""

    code = "cannot_write"

"""What each command of the command line does. The words and options are in `app.cli`; a module here is one command.

Promise: a module that talks to a server imports neither the web framework nor the database, so that it starts fast.
"""

"""The errors that a user can cause, and can cure."""


class UserError(ValueError):
    """Something the user gave is wrong.

    The message is one paragraph: what is wrong, where (file, line, key or row), and what to do
    about it.
    """


class BadReference(UserError):
    """A problem's reference answer cannot be read by its verifier."""

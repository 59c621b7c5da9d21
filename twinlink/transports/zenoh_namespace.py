"""Namespaces: the prefix of every key, which separates groups of nodes on the same routers."""

import re

from ..errors import ConfigurationError

_NAMESPACE = re.compile(r"[A-Za-z0-9._-]{1,63}(/[A-Za-z0-9._-]{1,63}){0,7}")


def check_namespace(text: str, where: str) -> str:
    """Return it.  Raises ConfigurationError that begins with ``where`` it was given."""
    if not _NAMESPACE.fullmatch(text):
        raise ConfigurationError(
            f"{where}: {text!r} is not 1 to 8 names joined by slashes, such as twinlink/cell-7; a name has 1 to 63 "
            "letters, digits, dots, dashes or underscores"
        )
    return text

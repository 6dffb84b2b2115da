"""The same names as `evalve.storage`."""

from evalve.storage import *  # noqa: F403  # the other name of one module

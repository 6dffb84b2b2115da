"""The version of evalve, where doteval keeps its own."""

from evalve import __version__ as __version__

version = __version__

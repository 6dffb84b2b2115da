"""Conversations of several turns: an agent, tools that work on a database, what is expected of each turn."""

from evalve.conversations.pairs import Pair
from evalve.conversations.playing import converse
from evalve.conversations.tools import tool
from evalve.conversations.turns import Turn
from evalve.errors import ToolError

__all__ = ["Pair", "ToolError", "Turn", "converse", "tool"]

"""The program that holds all agent processes of one evalve process, and ends them when that one ends.

It runs by itself, starts in milliseconds, and imports nothing but the standard library and this folder.
"""

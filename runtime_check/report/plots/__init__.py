"""Plots as inline SVG, drawn here: no script, no library, a few kilobytes each. Colours are variables of the page's
style, so that one drawing serves light, dark and print; what is told apart by colour is told apart by pattern too.
"""

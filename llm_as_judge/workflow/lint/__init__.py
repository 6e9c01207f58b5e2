"""Lint of workflows.

``check``: entry point, module and class. ``function``: statements. ``expressions``: names and calls. ``imports``.
``codes``: the findings. ``values``: what is known of variables; it checks nothing.
"""

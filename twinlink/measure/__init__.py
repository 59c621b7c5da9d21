"""Measuring a link: sweep -> records -> metrics -> results file -> table, figures, report.

The link never imports this package.
"""

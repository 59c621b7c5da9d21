"""Interference detection: numpy only, arrays in and arrays out."""

"""Mistakes worth making once: each job here runs, and is wrong as its docstring says."""

"""Helpers that every part uses, and that use no other part."""

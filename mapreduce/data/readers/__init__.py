"""Readers of foreign formats, one file each: from paths to a stream of rows."""

"""Reports: sections of text, tables and pictures, drawn on a terminal or as a page."""

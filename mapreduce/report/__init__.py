"""Reports: tables as text; sections of text, tables and pictures, on a terminal or as a page."""

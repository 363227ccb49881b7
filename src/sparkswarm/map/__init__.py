"""The live map: a small web server and a page that shows a run from its journal."""

"""The live map: a small server and a page that shows a run from its journal."""

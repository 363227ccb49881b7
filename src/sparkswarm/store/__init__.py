"""What must survive: queries in segments, which of them count, and what fixed each batch."""

"""Events of objects and fences: who enters, leaves and stays."""

"""The simulator: the protocol between machines that exchange messages, in virtual time."""

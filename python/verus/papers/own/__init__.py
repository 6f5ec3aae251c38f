"""Our own studies: every sender beside every other, parts of Verus, built-in channels, the emulator, other senders."""

"""What is measured beside the papers: the 2017 reproduction, our own channels, parts and emulator."""

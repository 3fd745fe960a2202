"""The accounting core: events and samples in, energy by stage and device out. Pure."""

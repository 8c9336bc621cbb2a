"""Native libraries as they are on disk: ELF and PE, what they load, and edits in place."""

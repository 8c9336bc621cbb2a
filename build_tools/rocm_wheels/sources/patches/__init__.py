"""Patch sets: read, applied before and after hipify, saved from a tree."""

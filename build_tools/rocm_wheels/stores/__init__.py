"""Stores: where releases lie, a folder or S3, with conditional writes."""

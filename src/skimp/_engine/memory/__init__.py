"""Bytes: layouts, storages, the allocator, and the ledger that counts."""

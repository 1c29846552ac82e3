"""A number of bytes that a program is held to: storages give their bytes away and get them back.

    spending   the setting: who is held to how much (`set_budget`, `budget`)
    evictable  a storage whose bytes can be away, and how they go and come
    choice     which storage goes
    spill      the file that bytes are written to
    places     which directory is on a disk

docs/notes/budget.md says why it is so.
"""

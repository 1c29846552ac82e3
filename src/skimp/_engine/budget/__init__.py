"""A number of bytes that a program is held to: storages give their bytes away and get them back.

    setting         who is held to how much (`set_budget`, `budget`)
    spending        who makes room
    repetition      whether a program does what it did, and needs none of this
    evictable       a storage whose bytes can be away, and how they go and come
    lending         scratch memory of kernels
    choice          which storage goes
    recipes         how bytes were made, from which others
    recording       where ops note it
    reading         what a call reads
    quick           ops while calls are noted, the short way
    formulas        what a formula of backward needs at once
    filling         what is made from numbers alone
    rematerializing following recipes
    spill           the file that bytes are written to
    places          which directory is on a disk
    computing       an expression while it is computed, and its time
    verify          checksums of what went and came back
    statistics      what was done
    telling         errors, the warning, the report

docs/notes/budget.md says why it is so.
"""

"""From a row and a call to a result: bind, transforms, fast path or deferral, record."""

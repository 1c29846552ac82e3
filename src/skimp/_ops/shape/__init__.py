"""Views, copies, joins and other arrangements of elements."""

"""Arrays in, arrays out: what computes, and knows no tensor."""

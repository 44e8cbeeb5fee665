// Kinds of codes; see dotKind in dots.go. A code is a number of a table with a scale and a zero for each group, or with the scale
// that a byte names for 16 or 32 columns, or a signed byte with a scale and a zero, or with two scales, or an
// unsigned byte with a scale and a zero.
enum { TABLE, BYTES, INT8, SCALED, UINT8 };

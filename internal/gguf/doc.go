// Package gguf reads the headers of GGUF files: metadata, and where each tensor is.
//
// [Read] parses a header of version 2 or 3 and checks all of it before anything is allocated for it:
// counts, lengths, nesting, types, shapes, alignment, offsets and overlap. It reads no weight. Files in
// big-endian order are rejected.
//
// The package knows the file format alone. It knows neither architectures nor kernels.
package gguf
